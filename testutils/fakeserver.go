package testutils

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/controlplane"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

const (
	adsMethods  = "/envoy.service.discovery.v3.AggregatedDiscoveryService/"
	deltaMethod = adsMethods + "DeltaAggregatedResources"

	dpdsMethods     = "/envoy.service.dynamic_parameters.v3.DynamicParametersDiscoveryService/"
	dpdsDeltaMethod = dpdsMethods + "DeltaDynamicParameterConstraints"
)

// FakeServer is a control plane on a real loopback port, with switches for
// every kind of fault a client has to survive. Without a switch thrown it is
// package controlplane as it is. It is safe for concurrent use. What is said of
// ADS streams holds for the streams of DPDS as well.
//
// Messages are twins of the published ones, in proto/dynxds/discovery/v3, which
// have what xRFC TP2 adds.
//
// Store, recording and switches survive Stop and Restart.
type FakeServer struct {
	store    *controlplane.Store
	port     *port
	opts     fakeServerOptions
	recorder *recorder
	reads    gate
	sends    gate

	// life serialises Stop and Restart.
	life sync.Mutex
	// run is nil while stopped.
	run *serverRun

	mu              sync.Mutex
	control         *controlplane.Server
	refuse          error
	refuseDelta     error
	dropStale       bool
	onRequest       func(Request) error
	onResponse      func(uint64, *discoverypb.DiscoveryResponse) *discoverypb.DiscoveryResponse
	onDeltaResponse func(uint64, *discoverypb.DeltaDiscoveryResponse) *discoverypb.DeltaDiscoveryResponse
	streams         map[uint64]*fakeStream
	attempts        uint64
	opened          uint64
	// news is closed and replaced whenever a stream began or ended.
	news chan struct{}
}

// serverRun is the server between a start and a stop.
type serverRun struct {
	grpc    *grpc.Server
	control *controlplane.Server
	// group has the goroutine of Serve and of every stream.
	group sync.WaitGroup
}

type fakeServerOptions struct {
	grpc    []grpc.ServerOption
	control controlplane.Options
	store   *controlplane.Store
	loads   *controlplane.LoadReports
	link    *Link
	keep    int
}

// FakeServerOption changes how a FakeServer is made.
type FakeServerOption func(*fakeServerOptions)

// GRPCOptions passes options, such as credentials, to the gRPC server.
func GRPCOptions(opts ...grpc.ServerOption) FakeServerOption {
	return func(o *fakeServerOptions) { o.grpc = append(o.grpc, opts...) }
}

// ControlPlaneOptions passes options to controlplane.NewServer. Deletions are told at
// once unless the options have a RemovalDelay.
func ControlPlaneOptions(opts controlplane.Options) FakeServerOption {
	return func(o *fakeServerOptions) { o.control = opts }
}

// OverStore makes the server serve a store of the caller's, which it may share
// with other servers.
func OverStore(store *controlplane.Store) FakeServerOption {
	return func(o *fakeServerOptions) { o.store = store }
}

// OverLink puts a link between the server and its clients, so that what they send each
// other is delayed. Servers may share one.
func OverLink(link *Link) FakeServerOption {
	return func(o *fakeServerOptions) { o.link = link }
}

// CollectLoads makes the server offer LRS as well, which it does not otherwise. The
// reports outlive restarts. GracefulStop waits for their streams: close them first.
func CollectLoads(loads *controlplane.LoadReports) FakeServerOption {
	return func(o *fakeServerOptions) { o.loads = loads }
}

// KeepRequests bounds how many requests the server remembers for Requests and
// Wait, of 2 at least: the newest n/2 of them are always there. It is for tests
// that measure memory.
func KeepRequests(n int) FakeServerOption {
	return func(o *fakeServerOptions) { o.keep = n }
}

// NewFakeServer starts a FakeServer. The caller has to Close it.
func NewFakeServer(opts ...FakeServerOption) (*FakeServer, error) {
	f := &FakeServer{streams: map[uint64]*fakeStream{}, news: make(chan struct{}), opts: fakeServerOptions{keep: maxRecorded}}
	for _, opt := range opts {
		opt(&f.opts)
	}
	f.opts.control.RemovalDelay = cmp.Or(f.opts.control.RemovalDelay, -1)
	f.recorder = newRecorder(f.opts.keep)
	f.store = f.opts.store
	if f.store == nil {
		f.store = controlplane.NewStore()
	}
	var err error
	if f.port, err = reservePort(); err != nil {
		return nil, fmt.Errorf("fake server: %w", err)
	}
	if err := f.Restart(); err != nil {
		f.port.release()
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
func (f *FakeServer) Addr() string { return f.port.addr }

// Store returns the store that is served.
func (f *FakeServer) Store() *controlplane.Store { return f.store }

// Clients returns what the control plane knows of its present streams; none
// while it is stopped.
func (f *FakeServer) Clients() []controlplane.ClientStatus {
	if control := f.Control(); control != nil {
		return control.Clients()
	}
	return nil
}

// Set puts resources into the store in one update. It fails the test if that is
// not possible.
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

// SetVariant puts the variants of resources with these dynamic parameters into
// the store in one update.
func (f *FakeServer) SetVariant(t testing.TB, parameters map[string]string, messages ...proto.Message) {
	t.Helper()
	f.Update(t, func(tx *controlplane.Tx) { tx.SetVariant(parameters, messages...) })
}

// SetDPDS makes a resource of constraints that is computed for each client; see
// [controlplane.Tx.SetDPDS]. After what of says has changed, call RefreshDPDS of
// the store.
func (f *FakeServer) SetDPDS(t testing.TB, name string, of controlplane.Constraints) {
	t.Helper()
	f.Update(t, func(tx *controlplane.Tx) { tx.SetDPDS(name, of) })
}

// AmbiguousChoices returns the count of [controlplane.Server.AmbiguousChoices]; zero while
// the control plane is stopped.
func (f *FakeServer) AmbiguousChoices() uint64 {
	if control := f.Control(); control != nil {
		return control.AmbiguousChoices()
	}
	return 0
}

// Control returns the control plane that runs, nil while it is stopped. Restart
// makes a new one.
func (f *FakeServer) Control() *controlplane.Server {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.control
}

// Update is Store().Update for a test that wants no error.
func (f *FakeServer) Update(t testing.TB, change func(*controlplane.Tx)) {
	t.Helper()
	if _, err := f.store.Update(change); err != nil {
		t.Fatal(err)
	}
}

// Stop ends every connection as a crash does, and stops listening: connections
// are refused until Restart. It does nothing if the server is stopped.
func (f *FakeServer) Stop() {
	f.stop(func(run *serverRun) {
		run.grpc.Stop()
		run.control.Close()
	})
}

// GracefulStop ends every stream with UNAVAILABLE and tells clients to go away
// before it stops listening.
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
	f.run.group.Wait()
	f.run = nil
	f.setControl(nil)
}

// Restart listens on the same address again, with the present store. It stops
// the server first if it is running.
func (f *FakeServer) Restart() error {
	f.Stop()
	f.life.Lock()
	defer f.life.Unlock()
	listener, err := f.port.listen()
	if err != nil {
		return fmt.Errorf("fake server: %w", err)
	}
	if f.opts.link != nil {
		listener = f.opts.link.Listener(listener)
	}
	run := &serverRun{control: controlplane.NewServer(f.store, f.opts.control)}
	intercept := func(srv any, wire grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if !strings.HasPrefix(info.FullMethod, adsMethods) && !strings.HasPrefix(info.FullMethod, dpdsMethods) {
			return handler(srv, wire)
		}
		return f.serveStream(run, info.FullMethod, srv, wire, handler)
	}
	run.grpc = grpc.NewServer(append([]grpc.ServerOption{
		grpc.ChainStreamInterceptor(intercept),
		grpc.WaitForHandlers(true),
	}, f.opts.grpc...)...)
	run.control.Register(run.grpc)
	if f.opts.loads != nil {
		f.opts.loads.Register(run.grpc)
	}
	run.group.Go(func() {
		// Serve ends with nil after Stop; a listener that fails earlier
		// shows as refused connections.
		_ = run.grpc.Serve(listener)
	})
	f.run = run
	f.setControl(run.control)
	return nil
}

// Close stops the server and gives up its port.
func (f *FakeServer) Close() {
	f.Stop()
	if f.opts.link != nil {
		f.opts.link.Wait()
	}
	f.port.release()
}

// Send sends a hand-made message, usually a *DiscoveryResponse or a
// *DeltaDiscoveryResponse as the stream's protocol has it, on the newest ADS
// stream, whatever switches are thrown. The client's answer to it is recorded; the control plane takes from it the subscription only. To be told
// apart, the response needs a nonce that the control plane does not use: any
// word does.
func (f *FakeServer) Send(m proto.Message) error {
	f.mu.Lock()
	var newest *fakeStream
	for _, s := range f.streams {
		if newest == nil || s.id > newest.id {
			newest = s
		}
	}
	f.mu.Unlock()
	if newest == nil {
		return errors.New("fake server: there is no ADS stream to send on")
	}
	return newest.inject(m)
}

// Requests returns all requests so far (of very many, the newest 50,000 at
// least).
func (f *FakeServer) Requests() []Request { return f.recorder.all() }

// Wait returns the next request that matches. It looks at each request once: it
// goes on after the one that the last successful Wait returned, and those it
// passes over are not seen again. The error says which requests came.
func (f *FakeServer) Wait(ctx context.Context, match Match) (Request, error) {
	return f.recorder.wait(ctx, match)
}

// MustWait is Wait that fails the test instead of returning an error.
func (f *FakeServer) MustWait(ctx context.Context, t testing.TB, match Match) Request {
	t.Helper()
	req, err := f.Wait(ctx, match)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// Skip makes the next Wait begin with what comes from now on.
func (f *FakeServer) Skip() { f.recorder.skip() }

// WaitOpen returns when exactly n ADS streams are open.
func (f *FakeServer) WaitOpen(ctx context.Context, n int) error {
	return f.await(ctx, func() error {
		if len(f.streams) == n {
			return nil
		}
		return fmt.Errorf("%d streams are open, want %d", len(f.streams), n)
	})
}

// WaitAttempts returns when at least n ADS streams were begun since the server
// was made, refused ones included.
func (f *FakeServer) WaitAttempts(ctx context.Context, n int) error {
	return f.await(ctx, func() error {
		if f.attempts >= uint64(n) {
			return nil
		}
		return fmt.Errorf("%d streams were begun, want %d", f.attempts, n)
	})
}

// Attempts returns how many ADS streams were begun since the server was made,
// refused ones included.
func (f *FakeServer) Attempts() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return int(f.attempts)
}

// await returns when check, called under mu, returns nil.
func (f *FakeServer) await(ctx context.Context, check func() error) error {
	for {
		f.mu.Lock()
		err, news := check(), f.news
		f.mu.Unlock()
		if err == nil {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return fmt.Errorf("fake server: %w: %w", err, ctx.Err())
		}
	}
}

// serveStream runs handler beside the switch that breaks streams. gRPC ends the
// stream when serveStream returns, which ends the handler too.
func (f *FakeServer) serveStream(run *serverRun, method string, srv any, wire grpc.ServerStream, handler grpc.StreamHandler) error {
	s, err := f.begin(method, wire)
	if err != nil {
		return err
	}
	defer f.end(s)
	ended := make(chan error, 1)
	run.group.Go(func() { ended <- handler(srv, s) })
	select {
	case err := <-ended:
		return err
	case err := <-s.broken:
		return err
	}
}

func (f *FakeServer) begin(method string, wire grpc.ServerStream) (*fakeStream, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.attempts++
	f.tell()
	refuse := f.refuse
	if refuse == nil && (method == deltaMethod || method == dpdsDeltaMethod) {
		refuse = f.refuseDelta
	}
	if refuse != nil {
		if _, ok := status.FromError(refuse); !ok {
			return nil, status.Error(codes.Unavailable, refuse.Error())
		}
		return nil, refuse
	}
	f.opened++
	s := newFakeStream(f, f.opened, wire)
	f.streams[s.id] = s
	return s, nil
}

func (f *FakeServer) end(s *fakeStream) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.streams, s.id)
	f.tell()
}

// tell wakes all who await. The caller holds mu.
func (f *FakeServer) tell() {
	close(f.news)
	f.news = make(chan struct{})
}

func (f *FakeServer) setControl(c *controlplane.Server) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.control = c
}
