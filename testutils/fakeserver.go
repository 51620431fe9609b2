package testutils

import (
	"cmp"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/loopback"
	"github.com/dynxds/dynxds/mesh/controlplane"
)

// FakeServer is a control plane on a real loopback port: package controlplane over a
// store. A test stops and restarts it at the same address; the store survives both. It is
// safe for concurrent use.
type FakeServer struct {
	store *controlplane.Store
	addr  *loopback.Address
	opts  fakeServerOptions

	// life serialises Stop and Restart.
	life sync.Mutex
	// run is nil while stopped.
	run *serverRun
	// control is nil while stopped.
	control atomic.Pointer[controlplane.Server]
}

// serverRun is the server between a start and a stop.
type serverRun struct {
	grpc    *grpc.Server
	control *controlplane.Server
	// served is closed when Serve has returned.
	served chan struct{}
}

type fakeServerOptions struct {
	grpc    []grpc.ServerOption
	control controlplane.Options
	store   *controlplane.Store
	loads   *controlplane.LoadReports
	link    *Link
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
	var err error
	if f.addr, err = loopback.Reserve(); err != nil {
		return nil, fmt.Errorf("fake server: %w", err)
	}
	if err := f.Restart(); err != nil {
		f.addr.Release()
		return nil, err
	}
	return f, nil
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
func (f *FakeServer) Addr() string { return f.addr.String() }

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
func (f *FakeServer) Stop() {
	f.stop(func(run *serverRun) {
		run.grpc.Stop()
		run.control.Close()
	})
}

// GracefulStop ends every stream with UNAVAILABLE, sends GOAWAY and stops listening.
func (f *FakeServer) GracefulStop() {
	f.stop(func(run *serverRun) {
		run.control.Close()
		run.grpc.GracefulStop()
	})
}

func (f *FakeServer) stop(how func(*serverRun)) {
	f.life.Lock()
	defer f.life.Unlock()
	if f.run == nil {
		return
	}
	how(f.run)
	<-f.run.served
	f.run = nil
	f.control.Store(nil)
}

// Restart listens on the same address again, with the same store. It stops the server first if it is
// running.
func (f *FakeServer) Restart() error {
	f.Stop()
	f.life.Lock()
	defer f.life.Unlock()
	listener, err := f.addr.Listen()
	if err != nil {
		return fmt.Errorf("fake server: %w", err)
	}
	if f.opts.link != nil {
		listener = f.opts.link.Listener(listener)
	}
	run := &serverRun{
		grpc:    grpc.NewServer(append([]grpc.ServerOption{grpc.WaitForHandlers(true)}, f.opts.grpc...)...),
		control: controlplane.NewServer(f.store, f.opts.control),
		served:  make(chan struct{}),
	}
	run.control.Register(run.grpc)
	if f.opts.loads != nil {
		f.opts.loads.Register(run.grpc)
	}
	go func() {
		defer close(run.served)
		// Serve returns nil after Stop. If the listener fails, connections are refused.
		_ = run.grpc.Serve(listener)
	}()
	f.run = run
	f.control.Store(run.control)
	return nil
}

// Close stops the server and releases its port.
func (f *FakeServer) Close() {
	f.Stop()
	if f.opts.link != nil {
		f.opts.link.Wait()
	}
	f.addr.Release()
}
