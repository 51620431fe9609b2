package xdsclient

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	loadv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/xdstest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// patience is how long a test waits for what must happen. In a synctest bubble it
// takes no time, and a test can be certain that nothing more comes.
const patience = 2 * time.Minute

// steady is a backoff without jitter, so that tests can tell when attempts come.
var steady = backoff.Config{BaseDelay: time.Second, Multiplier: 2, MaxDelay: 8 * time.Second}

// script is an ADS server that does what a test says, message by message.
type script struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	t       *testing.T
	streams chan *scriptStream

	mu       sync.Mutex
	listener *bufconn.Listener
	server   *grpc.Server
	serving  sync.WaitGroup
	// begun are the times at which streams began, relative to the start.
	begun   []time.Duration
	started time.Time
	// refuse ends every stream that begins.
	refuse error
	// sotwOnly has the server not implement delta.
	sotwOnly bool
	deltas   chan *deltaStream
	// loads is the LRS, or nil.
	loads loadv3.LoadReportingServiceServer
	// dialled counts the connections.
	dialled int
	// wire, if not nil, stands between a client and the connection it dials.
	wire    func(net.Conn) net.Conn
	stalled []*stallingConn
	// gate is closed when connections may be made. Until then a client collects
	// watches.
	gate chan struct{}
}

// serverStream is one stream of either protocol at the server. Its requests are the twins of xRFC TP2.
type serverStream[Req, Resp any] struct {
	t        *testing.T
	wire     grpc.ServerStream
	requests chan *Req
	end      chan error
}

func newServerStream[Req, Resp any](t *testing.T, wire grpc.ServerStream) serverStream[Req, Resp] {
	return serverStream[Req, Resp]{t: t, wire: wire, requests: make(chan *Req, 1000), end: make(chan error, 1)}
}

// serve passes requests on until the stream ends.
func (s *serverStream[Req, Resp]) serve() error {
	received := make(chan struct{})
	go func() {
		defer close(received)
		for {
			r := new(Req)
			if s.wire.RecvMsg(r) != nil {
				return
			}
			s.requests <- r
		}
	}()
	select {
	case err := <-s.end:
		return err
	case <-received:
		return status.FromContextError(s.wire.Context().Err()).Err()
	}
}

// request waits for the next request.
func (s *serverStream[Req, Resp]) request() *Req {
	s.t.Helper()
	select {
	case r := <-s.requests:
		return r
	case <-time.After(patience):
		s.t.Fatal("no request came")
		return nil
	}
}

// quiet checks that no request is on its way.
func (s *serverStream[Req, Resp]) quiet() {
	s.t.Helper()
	synctest.Wait()
	select {
	case r := <-s.requests:
		s.t.Fatalf("got a request that nothing called for: %v", r)
	default:
	}
}

// respond sends a response.
func (s *serverStream[Req, Resp]) respond(r *Resp) {
	s.t.Helper()
	if err := s.wire.SendMsg(r); err != nil {
		s.t.Fatalf("cannot send %v: %v", r, err)
	}
}

// breakOff ends the stream with an error.
func (s *serverStream[Req, Resp]) breakOff() {
	s.end <- status.Error(codes.Unavailable, "off for lunch")
}

// scriptStream is one SotW stream at the server.
type scriptStream struct {
	serverStream[discoverypb.DiscoveryRequest, discoveryv3.DiscoveryResponse]
}

func newScript(t *testing.T) *script {
	s := &script{t: t, streams: make(chan *scriptStream, 1000), deltas: make(chan *deltaStream, 1000), started: time.Now(), gate: make(chan struct{})}
	s.start()
	t.Cleanup(s.stop)
	return s
}

// start makes the server reachable.
func (s *script) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listener = bufconn.Listen(1 << 20)
	s.server = grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(s.server, s)
	if s.loads != nil {
		loadv3.RegisterLoadReportingServiceServer(s.server, s.loads)
	}
	server, listener := s.server, s.listener
	s.serving.Go(func() { _ = server.Serve(listener) })
}

// stop breaks all connections, and refuses further ones.
func (s *script) stop() {
	s.mu.Lock()
	server := s.server
	s.mu.Unlock()
	server.Stop()
	s.serving.Wait()
}

func (s *script) dial(ctx context.Context, _ string) (net.Conn, error) {
	s.mu.Lock()
	gate := s.gate
	s.mu.Unlock()
	select {
	case <-gate:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s.mu.Lock()
	s.dialled++
	listener := s.listener
	s.mu.Unlock()
	conn, err := listener.DialContext(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && s.wire != nil {
		conn = s.wire(conn)
	}
	return conn, err
}

// hold keeps clients from connecting until open.
func (s *script) hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gate = make(chan struct{})
}

// open lets clients connect, once everything that goes on has come to rest.
func (s *script) open() {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.gate:
	default:
		close(s.gate)
	}
}

func (s *script) setRefuse(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = err
}

func (s *script) setSotWOnly(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sotwOnly = on
}

// attempts returns when streams began.
func (s *script) attempts() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]time.Duration(nil), s.begun...)
}

func (s *script) StreamAggregatedResources(wire discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	s.mu.Lock()
	s.begun = append(s.begun, time.Since(s.started))
	refuse := s.refuse
	s.mu.Unlock()
	if refuse != nil {
		return refuse
	}
	stream := &scriptStream{newServerStream[discoverypb.DiscoveryRequest, discoveryv3.DiscoveryResponse](s.t, wire)}
	s.streams <- stream
	return stream.serve()
}

// stream lets clients connect and waits for the next stream to begin.
func (s *script) stream() *scriptStream {
	s.t.Helper()
	s.open()
	select {
	case stream := <-s.streams:
		return stream
	case <-time.After(patience):
		s.t.Fatal("no stream was opened")
		return nil
	}
}

// asked waits for the next stream to begin, and for its first request.
func (s *script) asked() *scriptStream {
	s.t.Helper()
	stream := s.stream()
	stream.request()
	return stream
}

// send sends a response with resources, each a message or an Any.
func (s *scriptStream) send(typ *ResourceType, version, nonce string, resources ...proto.Message) {
	s.t.Helper()
	r := &discoveryv3.DiscoveryResponse{TypeUrl: typ.TypeURL, VersionInfo: version, Nonce: nonce}
	for _, m := range resources {
		r.Resources = append(r.Resources, pack(s.t, m))
	}
	s.respond(r)
}

// anyOf puts a message, unless it is one, into an Any.
func anyOf(m proto.Message) (*anypb.Any, error) {
	if a, ok := m.(*anypb.Any); ok {
		return a, nil
	}
	return anypb.New(m)
}

func pack(t testing.TB, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anyOf(m)
	xdstest.NoError(t, err)
	return a
}

// wrap wraps a resource as a server may.
func wrap(t testing.TB, name string, m proto.Message) proto.Message {
	return &discoveryv3.Resource{Name: name, Version: "7", Resource: pack(t, m)}
}

// parseBootstrap reads a bootstrap for a server at uri.
func parseBootstrap(t testing.TB, uri string, opts ...testutils.BootstrapOption) *bootstrap.Config {
	t.Helper()
	cfg, err := bootstrap.Parse("test", testutils.Bootstrap("node-1", uri, opts...))
	xdstest.NoError(t, err)
	return cfg
}

// client makes a client of the server that is closed at the end of the test.
func (s *script) client(opts ...testutils.BootstrapOption) *XDSClient {
	s.t.Helper()
	c, err := New(parseBootstrap(s.t, "passthrough:///script", opts...),
		WithDialOptions(grpc.WithContextDialer(s.dial)), WithBackoff(steady))
	xdstest.NoError(s.t, err)
	s.t.Cleanup(c.Close)
	return c
}

// pass lets time pass in a bubble.
func pass(d time.Duration) { <-time.After(d) }

// bubble runs a test in a synctest bubble.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

// overSotW runs a test with a client of a server that speaks SotW, in a bubble.
func overSotW(t *testing.T, f func(t *testing.T, types *testTypes, server *script, c *XDSClient), options ...testutils.BootstrapOption) {
	t.Helper()
	overServer(t, (*script).client, f, options...)
}

// overDelta does so with a server that speaks delta too.
func overDelta(t *testing.T, f func(t *testing.T, types *testTypes, server *script, c *XDSClient), features ...string) {
	t.Helper()
	overServer(t, (*script).deltaClient, f, features...)
}

// overCollections does so with a server that speaks delta and has an authority "auth".
func overCollections(t *testing.T, f func(t *testing.T, types *testTypes, server *script, c *XDSClient), features ...string) {
	t.Helper()
	overServer(t, (*script).collectionClient, f, features...)
}

func overServer[O any](t *testing.T, newClient func(*script, ...O) *XDSClient, f func(t *testing.T, types *testTypes, server *script, c *XDSClient), options ...O) {
	t.Helper()
	bubble(t, func(t *testing.T) {
		server := newScript(t)
		f(t, newTestTypes(), server, newClient(server, options...))
	})
}

// deltaStream is one incremental stream at the server.
type deltaStream struct {
	serverStream[discoverypb.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse]
}

func (s *script) DeltaAggregatedResources(wire discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	s.mu.Lock()
	s.begun = append(s.begun, time.Since(s.started))
	refuse, sotwOnly := s.refuse, s.sotwOnly
	s.mu.Unlock()
	if sotwOnly {
		return s.UnimplementedAggregatedDiscoveryServiceServer.DeltaAggregatedResources(wire)
	}
	if refuse != nil {
		return refuse
	}
	stream := &deltaStream{newServerStream[discoverypb.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse](s.t, wire)}
	s.deltas <- stream
	return stream.serve()
}

// delta lets clients connect and waits for the next incremental stream to begin,
// and for what the client has to say: an answer before the question counts for
// nothing.
func (s *script) delta() *deltaStream {
	s.t.Helper()
	s.open()
	select {
	case stream := <-s.deltas:
		synctest.Wait()
		return stream
	case <-time.After(patience):
		s.t.Fatal("no stream was opened")
		return nil
	}
}

// askedDelta waits for the next incremental stream to begin, and for its first request.
func (s *script) askedDelta() *deltaStream {
	s.t.Helper()
	stream := s.delta()
	stream.request()
	return stream
}

// deltaClient makes a client that speaks delta.
func (s *script) deltaClient(features ...string) *XDSClient {
	s.t.Helper()
	return s.client(testutils.ServerFeatures(append([]string{"delta"}, features...)...))
}

// part is something that an incremental response says.
type part func(*discoveryv3.DeltaDiscoveryResponse)

// has sends a resource of the given version.
func has(name, version string, m proto.Message, aliases ...string) part {
	return func(r *discoveryv3.DeltaDiscoveryResponse) {
		var a *anypb.Any
		if m != nil {
			var err error
			if a, err = anyOf(m); err != nil {
				panic(err)
			}
		}
		r.Resources = append(r.Resources, &discoveryv3.Resource{Name: name, Version: version, Resource: a, Aliases: aliases})
	}
}

func lacks(names ...string) part {
	return func(r *discoveryv3.DeltaDiscoveryResponse) {
		r.RemovedResources = append(r.RemovedResources, names...)
	}
}

// resourceError makes an error in place of a resource.
func resourceError(name string, code codes.Code, text string) *discoveryv3.ResourceError {
	return &discoveryv3.ResourceError{
		ResourceName: &discoveryv3.ResourceName{Name: name},
		ErrorDetail:  &statuspb.Status{Code: int32(code), Message: text},
	}
}

func fails(name string, code codes.Code, text string) part {
	return func(r *discoveryv3.DeltaDiscoveryResponse) {
		r.ResourceErrors = append(r.ResourceErrors, resourceError(name, code, text))
	}
}

func (s *deltaStream) send(typ *ResourceType, nonce string, parts ...part) {
	s.t.Helper()
	s.respond(deltaResponse(typ, nonce, parts...))
}

func deltaResponse(typ *ResourceType, nonce string, parts ...part) *discoveryv3.DeltaDiscoveryResponse {
	r := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typ.TypeURL, SystemVersionInfo: "debug", Nonce: nonce}
	for _, p := range parts {
		p(r)
	}
	return r
}
