package xdsclient

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	loadv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/xdstest"
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
	streams chan *serverStream

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

// serverStream is a stream of either protocol at the server. Its messages are the twins of xRFC TP2.
type serverStream struct {
	t        *testing.T
	wire     grpc.ServerStream
	delta    bool
	requests chan *transcriptRequest
	end      chan error
}

// serve passes requests on until the stream ends.
func (s *serverStream) serve() error {
	received := make(chan struct{})
	go func() {
		defer close(received)
		for {
			r, err := requestOf(s.t, s.delta, s.wire.RecvMsg)
			if err != nil {
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

func (s *serverStream) context() context.Context    { return s.wire.Context() }
func (s *serverStream) endWith(err error)           { s.end <- err }
func (s *serverStream) sendMessage(m proto.Message) { xdstest.NoError(s.t, s.wire.SendMsg(m)) }

// next implements transcriptStream.
func (s *serverStream) next() *transcriptRequest {
	select {
	case r := <-s.requests:
		return r
	default:
		return nil
	}
}

func newScript(t *testing.T) *script {
	s := &script{t: t, streams: make(chan *serverStream, 1000), started: time.Now(), gate: make(chan struct{})}
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
	return s.serve(wire, false)
}

func (s *script) DeltaAggregatedResources(wire discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return s.serve(wire, true)
}

func (s *script) serve(wire grpc.ServerStream, delta bool) error {
	s.mu.Lock()
	s.begun = append(s.begun, time.Since(s.started))
	refuse := s.refuse
	if delta && s.sotwOnly {
		refuse = status.Error(codes.Unimplemented, "method DeltaAggregatedResources not implemented")
	}
	s.mu.Unlock()
	if refuse != nil {
		return refuse
	}
	stream := &serverStream{s.t, wire, delta, make(chan *transcriptRequest, 1000), make(chan error, 1)}
	s.streams <- stream
	return stream.serve()
}

func pack(t testing.TB, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	xdstest.NoError(t, err)
	return a
}

// parseBootstrap reads a bootstrap for a server at uri.
func parseBootstrap(t testing.TB, uri string, opts ...testutils.BootstrapOption) *bootstrap.Config {
	t.Helper()
	cfg, err := bootstrap.Parse("test", testutils.Bootstrap("node-1", uri, opts...))
	xdstest.NoError(t, err)
	return cfg
}

// pass lets time pass in a bubble.
func pass(d time.Duration) { <-time.After(d) }

// bubble runs a test in a synctest bubble.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

// fleet is a list of servers, the preferred one first.
type fleet []*script

// newFleet starts servers that are reached as passthrough:///0, 1 and so on. They
// let clients connect at once.
func newFleet(t *testing.T, n int) fleet {
	f := make(fleet, n)
	for i := range f {
		f[i] = newScript(t)
		close(f[i].gate)
	}
	return f
}

func uri(i int) string { return fmt.Sprint("passthrough:///", i) }

func (f fleet) dial(ctx context.Context, addr string) (net.Conn, error) {
	return f[addr[0]-'0'].dial(ctx, addr)
}

// authorityWith is an authority with some of the servers, which have the given features.
func authorityWith(name string, features [][]string, servers ...int) testutils.BootstrapOption {
	var list []map[string]any
	for _, i := range servers {
		s := map[string]any{"server_uri": uri(i), "channel_creds": []any{map[string]any{"type": "insecure"}}}
		if len(features[i]) > 0 {
			s["server_features"] = features[i]
		}
		list = append(list, s)
	}
	return testutils.Authority(name, "", map[string]any{"xds_servers": list})
}

// clientWith makes a client of the fleet, whose servers have the given features.
func (f fleet) clientWith(features [][]string, opts ...testutils.BootstrapOption) *XDSClient {
	t := f[0].t
	t.Helper()
	servers := []testutils.BootstrapOption{testutils.ServerFeatures(features[0]...)}
	for i := 1; i < len(f); i++ {
		servers = append(servers, testutils.FurtherServer(uri(i), features[i]...))
	}
	c, err := New(parseBootstrap(t, uri(0), append(servers, opts...)...), Options{Dial: []grpc.DialOption{grpc.WithContextDialer(f.dial)}, Backoff: steady})
	xdstest.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// stallingConn lets only so many bytes through to its reader until it is closed.
type stallingConn struct {
	net.Conn
	left   int
	closed chan struct{}
	once   sync.Once
}

func (c *stallingConn) Read(b []byte) (int, error) {
	if c.left == 0 {
		<-c.closed
		return 0, net.ErrClosed
	}
	n, err := c.Conn.Read(b[:min(len(b), c.left)])
	c.left -= n
	return n, err
}

func (c *stallingConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// stall has further connections let only so many bytes through to the client, until flow.
func (s *script) stall(left int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wire = func(conn net.Conn) net.Conn {
		c := &stallingConn{Conn: conn, left: left, closed: make(chan struct{})}
		s.stalled = append(s.stalled, c)
		return c
	}
}

// flow closes the connections that stall, and lets further ones do as usual.
func (s *script) flow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wire = nil
	for _, c := range s.stalled {
		c.Close()
	}
}
