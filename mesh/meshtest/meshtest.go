// Package meshtest runs a control plane for tests of this repository: package controlplane over a store,
// on a loopback port, where it stops and restarts. It records what clients request and injects faults, as
// package internal/xdstest describes.
//
// It is for tests of the control plane and the relay, and of the client together with them. Tests of
// programs use the server of package testutils.
package meshtest

import (
	"cmp"
	"net"
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
	opts  options
	// control is nil while the server is stopped.
	control atomic.Pointer[controlplane.Server]
}

type options struct {
	grpc    []grpc.ServerOption
	control controlplane.Options
	store   *controlplane.Store
	loads   *controlplane.LoadReports
	link    *testutils.Link
}

// Option configures a Server.
type Option func(*options)

// GRPCOptions passes options, such as credentials, to the gRPC server.
func GRPCOptions(opts ...grpc.ServerOption) Option {
	return func(o *options) { o.grpc = append(o.grpc, opts...) }
}

// ControlPlaneOptions passes options to controlplane.NewServer. Removals are sent at once unless the
// options have a RemovalDelay.
func ControlPlaneOptions(opts controlplane.Options) Option {
	return func(o *options) { o.control = opts }
}

// OverStore makes the server serve the given store, which it may share with other servers.
func OverStore(store *controlplane.Store) Option {
	return func(o *options) { o.store = store }
}

// OverLink puts a link between the server and its clients. Servers may share one.
func OverLink(link *testutils.Link) Option {
	return func(o *options) { o.link = link }
}

// CollectLoads makes the server offer LRS as well. The reports survive restarts. GracefulStop waits for
// their streams: close them first.
func CollectLoads(loads *controlplane.LoadReports) Option {
	return func(o *options) { o.loads = loads }
}

// StartServer starts a Server that is closed when the test ends.
func StartServer(t testing.TB, opts ...Option) *Server {
	t.Helper()
	s := &Server{Tap: xdstest.NewTap()}
	for _, opt := range opts {
		opt(&s.opts)
	}
	s.opts.control.RemovalDelay = cmp.Or(s.opts.control.RemovalDelay, -1)
	if s.store = s.opts.store; s.store == nil {
		s.store = controlplane.NewStore()
	}
	var wrap func(net.Listener) net.Listener
	if link := s.opts.link; link != nil {
		wrap = link.Listener
		t.Cleanup(link.Wait)
	}
	var err error
	s.Server, err = loopback.StartServer(s.run, wrap)
	xdstest.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// run returns what is served from a start until a stop.
func (s *Server) run() loopback.Run {
	opts := []grpc.ServerOption{grpc.WaitForHandlers(true), grpc.ChainStreamInterceptor(s.Intercept)}
	server := grpc.NewServer(append(opts, s.opts.grpc...)...)
	control := controlplane.NewServer(s.store, s.opts.control)
	control.Register(server)
	if s.opts.loads != nil {
		s.opts.loads.Register(server)
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

// AmbiguousChoices returns the count of [controlplane.Server.AmbiguousChoices]; zero while
// the control plane is stopped.
func (s *Server) AmbiguousChoices() uint64 {
	if control := s.Control(); control != nil {
		return control.AmbiguousChoices()
	}
	return 0
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
