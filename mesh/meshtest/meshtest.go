// Package meshtest runs a control plane for tests of this repository: package controlplane over a store,
// on a loopback port, where it stops and restarts. It records what clients request and injects faults, as
// package internal/xdstest describes.
//
// It is for tests of the control plane and the relay, and of the client together with them. Tests of
// programs use the server of package testutils.
package meshtest

import (
	"cmp"
	"sync/atomic"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/loopback"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// Server is a control plane that stops and restarts at the same address; the store, what was recorded and
// the errors survive both. It is safe for concurrent use.
type Server struct {
	*loopback.Server
	*xdstest.Tap
	store *controlplane.Store
	opts  Options
	// control is nil while the server is stopped.
	control atomic.Pointer[controlplane.Server]
}

// Options are those of a Server, each of which may be left out.
type Options struct {
	// GRPC are options, such as credentials, of the gRPC server, and Control those of the control plane, which sends removals at once
	// unless they have a RemovalDelay.
	GRPC    []grpc.ServerOption
	Control controlplane.Options
	// Store is served, and may be that of other servers too.
	Store *controlplane.Store
	// Loads makes the server offer LRS as well. The reports survive restarts. GracefulStop waits for their streams: close them first.
	Loads *controlplane.LoadReports
	// Link is between the server and its clients. Servers may share one.
	Link *testutils.Link
}

// StartServer starts a Server that is closed when the test ends.
func StartServer(t testing.TB) *Server {
	t.Helper()
	return Start(t, Options{})
}

// Start is StartServer with options.
func Start(t testing.TB, opts Options) *Server {
	t.Helper()
	s := &Server{Tap: xdstest.NewTap(), opts: opts, store: opts.Store}
	s.opts.Control.RemovalDelay = cmp.Or(opts.Control.RemovalDelay, -1)
	if s.store == nil {
		s.store = controlplane.NewStore()
	}
	s.Server = xdstest.StartLoopback(t, s.run, opts.Link)
	return s
}

// run returns what is served from a start until a stop.
func (s *Server) run() loopback.Run {
	opts := []grpc.ServerOption{grpc.WaitForHandlers(true), grpc.ChainStreamInterceptor(s.Intercept)}
	server := grpc.NewServer(append(opts, s.opts.GRPC...)...)
	control := controlplane.NewServer(s.store, s.opts.Control)
	control.Register(server)
	if s.opts.Loads != nil {
		s.opts.Loads.Register(server)
	}
	s.control.Store(control)
	return loopback.Run{GRPC: server, EndStreams: func() {
		control.Close()
		s.control.Store(nil)
	}}
}

// Control returns the control plane, nil while it is stopped. Restart makes a new one.
func (s *Server) Control() *controlplane.Server { return s.control.Load() }

// Clients returns the status of the present streams; none while the control plane is stopped.
func (s *Server) Clients() []controlplane.ClientStatus {
	if control := s.Control(); control != nil {
		return control.Clients()
	}
	return nil
}

// Bootstrap returns a bootstrap file for this server.
func (s *Server) Bootstrap(nodeID string, opts ...testutils.BootstrapOption) []byte {
	return testutils.Bootstrap(nodeID, s.Addr(), opts...)
}

// Store returns the server's store.
func (s *Server) Store() *controlplane.Store { return s.store }

// Update is Store().Update. It fails the test on an error.
func (s *Server) Update(t testing.TB, change func(*controlplane.Tx)) {
	t.Helper()
	_, err := s.store.Update(change)
	xdstest.NoError(t, err)
}

// Set sets resources in one update. It fails the test on an error.
func (s *Server) Set(t testing.TB, messages ...proto.Message) {
	t.Helper()
	s.Update(t, func(tx *controlplane.Tx) { tx.Set(messages...) })
}

// Delete removes resources of one type in one update.
func (s *Server) Delete(t testing.TB, typeURL string, names ...string) {
	t.Helper()
	s.Update(t, func(tx *controlplane.Tx) {
		for _, name := range names {
			tx.Delete(typeURL, name)
		}
	})
}

// SetVariant sets the variants of resources with these dynamic parameters in one update.
func (s *Server) SetVariant(t testing.TB, parameters map[string]string, messages ...proto.Message) {
	t.Helper()
	s.Update(t, func(tx *controlplane.Tx) { tx.SetVariant(parameters, messages...) })
}

// SetDPDS sets a resource of constraints that is computed for each client; see
// [controlplane.Tx.SetDPDS]. If the results of the function change, call RefreshDPDS of the store.
func (s *Server) SetDPDS(t testing.TB, name string, of func(node *corepb.Node) (dynparam.ByType, error)) {
	t.Helper()
	s.Update(t, func(tx *controlplane.Tx) { tx.SetDPDS(name, of) })
}
