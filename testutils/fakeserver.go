package testutils

import (
	"cmp"
	"fmt"
	"net"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/loopback"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// FakeServer is a control plane on a real loopback port: package controlplane over a
// store. A test stops and restarts it at the same address; the store survives both. It is
// safe for concurrent use.
type FakeServer struct {
	store  *controlplane.Store
	server *loopback.Server
	opts   fakeServerOptions
	// control is nil while the server is stopped.
	control atomic.Pointer[controlplane.Server]
}

type fakeServerOptions struct {
	grpc    []grpc.ServerOption
	control controlplane.Options
	store   *controlplane.Store
	loads   *controlplane.LoadReports
	link    *Link
}

// Locator is a name and the constraints that a client subscribes to it with (xRFC TP2).
type Locator struct {
	Name        string
	Constraints dynparam.Constraints
}

// FakeServerOption configures a FakeServer.
type FakeServerOption func(*fakeServerOptions)

// GRPCOptions passes options, such as credentials, to the gRPC server.
func GRPCOptions(opts ...grpc.ServerOption) FakeServerOption {
	return func(o *fakeServerOptions) { o.grpc = append(o.grpc, opts...) }
}

// ControlPlaneOptions passes options to controlplane.NewServer. Removals are sent at once unless the
// options have a RemovalDelay.
func ControlPlaneOptions(opts controlplane.Options) FakeServerOption {
	return func(o *fakeServerOptions) { o.control = opts }
}

// OverStore makes the server serve the given store, which it may share with other servers.
func OverStore(store *controlplane.Store) FakeServerOption {
	return func(o *fakeServerOptions) { o.store = store }
}

// OverLink puts a link between the server and its clients. Servers may share one.
func OverLink(link *Link) FakeServerOption {
	return func(o *fakeServerOptions) { o.link = link }
}

// CollectLoads makes the server offer LRS as well. The reports survive restarts. GracefulStop waits for
// their streams: close them first.
func CollectLoads(loads *controlplane.LoadReports) FakeServerOption {
	return func(o *fakeServerOptions) { o.loads = loads }
}

// NewFakeServer starts a FakeServer. The caller must Close it.
func NewFakeServer(opts ...FakeServerOption) (*FakeServer, error) {
	f := new(FakeServer)
	for _, opt := range opts {
		opt(&f.opts)
	}
	f.opts.control.RemovalDelay = cmp.Or(f.opts.control.RemovalDelay, -1)
	f.store = f.opts.store
	if f.store == nil {
		f.store = controlplane.NewStore()
	}
	var wrap func(net.Listener) net.Listener
	if f.opts.link != nil {
		wrap = f.opts.link.Listener
	}
	var err error
	if f.server, err = loopback.StartServer(f.run, wrap); err != nil {
		return nil, fmt.Errorf("fake server: %w", err)
	}
	return f, nil
}

// run returns what is served from a start until a stop.
func (f *FakeServer) run() loopback.Run {
	server := grpc.NewServer(append([]grpc.ServerOption{grpc.WaitForHandlers(true)}, f.opts.grpc...)...)
	control := controlplane.NewServer(f.store, f.opts.control)
	control.Register(server)
	if f.opts.loads != nil {
		f.opts.loads.Register(server)
	}
	f.control.Store(control)
	return loopback.Run{GRPC: server, EndStreams: func() {
		control.Close()
		f.control.Store(nil)
	}}
}

// StartFakeServer starts a FakeServer that is closed when the test ends.
func StartFakeServer(t testing.TB, opts ...FakeServerOption) *FakeServer {
	t.Helper()
	f, err := NewFakeServer(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

// Addr returns "127.0.0.1:port", the server_uri of the bootstrap. It stays the
// same across restarts.
func (f *FakeServer) Addr() string { return f.server.Addr() }

// Store returns the server's store.
func (f *FakeServer) Store() *controlplane.Store { return f.store }

// Set sets resources in one update. It fails the test on an error.
func (f *FakeServer) Set(t testing.TB, messages ...proto.Message) {
	t.Helper()
	f.Update(t, func(tx *controlplane.Tx) { tx.Set(messages...) })
}

// Delete removes resources of one type in one update.
func (f *FakeServer) Delete(t testing.TB, typeURL string, names ...string) {
	t.Helper()
	f.Update(t, func(tx *controlplane.Tx) {
		for _, name := range names {
			tx.Delete(typeURL, name)
		}
	})
}

// SetVariant sets the variants of resources with these dynamic parameters in one update.
func (f *FakeServer) SetVariant(t testing.TB, parameters map[string]string, messages ...proto.Message) {
	t.Helper()
	f.Update(t, func(tx *controlplane.Tx) { tx.SetVariant(parameters, messages...) })
}

// Control returns the control plane, nil while it is stopped. Restart makes a new one.
func (f *FakeServer) Control() *controlplane.Server { return f.control.Load() }

// Update is Store().Update. It fails the test on an error.
func (f *FakeServer) Update(t testing.TB, change func(*controlplane.Tx)) {
	t.Helper()
	if _, err := f.store.Update(change); err != nil {
		t.Fatal(err)
	}
}

// Stop ends every connection as a crash does, and stops listening: connections are refused until
// Restart. It does nothing if the server is stopped.
func (f *FakeServer) Stop() { f.server.Stop() }

// GracefulStop ends every stream with UNAVAILABLE, sends GOAWAY and stops listening.
func (f *FakeServer) GracefulStop() { f.server.GracefulStop() }

// Restart listens on the same address again, with the same store. It stops the server first if it is
// running.
func (f *FakeServer) Restart() error {
	if err := f.server.Restart(); err != nil {
		return fmt.Errorf("fake server: %w", err)
	}
	return nil
}

// Close stops the server and releases its port.
func (f *FakeServer) Close() {
	f.server.Close()
	if f.opts.link != nil {
		f.opts.link.Wait()
	}
}
