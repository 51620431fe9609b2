package configselector_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/configselector"
	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a server, a plain gRPC channel to it, and a Selector whose RPCs go there.
type world struct {
	cc *grpc.ClientConn
	ch *configselector.Channel
	s  *configselector.Selector

	pick func(ctx context.Context) error // what the picker does, or nil; see makeRPC

	xdstest.State
	rpcs  int        // that the server saw
	conns []net.Conn // that the channel has opened
}

// disconnect breaks the channel's connections.
func (w *world) disconnect() {
	w.Change(func() {
		for _, c := range w.conns {
			c.Close()
		}
		w.conns = nil
	})
}

// worldConfig configures a world. The zero value is as plain as possible.
type worldConfig struct {
	routes   []*xdsresource.Route // nil: toC
	vh       xdsresource.VirtualHost
	listener xdsresource.Listener
	handle   func(n int, s grpc.ServerStream) error // n counts RPCs from 0; nil: echoAll
	dial     []grpc.DialOption

	authority string // of the channel; "": "service"
	secure    bool   // the channel's credentials check the authority
	metrics   estats.MetricsRecorder
}

func newWorld(t testing.TB, c worldConfig) *world {
	t.Helper()
	w := new(world)
	l := bufconn.Listen(1 << 20)
	// The window does not grow: a client that a server does not read has to wait.
	server := grpc.NewServer(grpc.InitialWindowSize(1<<16), grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		var n int
		w.Change(func() { n, w.rpcs = w.rpcs, w.rpcs+1 })
		return c.handle(n, s)
	}))
	go func() { _ = server.Serve(l) }()
	opts := append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			c, err := l.DialContext(ctx)
			if err == nil {
				w.Change(func() { w.conns = append(w.conns, c) })
			}
			return c, err
		}),
		grpc.WithAuthority("service"),
	}, c.dial...)
	cc, err := grpc.NewClient("passthrough:///bufconn", opts...)
	xdstest.NoError(t, err)
	t.Cleanup(func() {
		cc.Close()
		server.Stop()
	})
	w.cc = cc
	w.ch = configselector.NewChannel(cc, cmp.Or(c.authority, "service"), c.secure, c.metrics)
	if c.routes == nil {
		c.routes = []*xdsresource.Route{toC()}
	}
	if c.handle == nil {
		c.handle = echoAll
	}
	c.vh.Routes = c.routes
	w.s = w.ch.NewSelector(configselector.Config{Version: 1, Listener: &c.listener, VirtualHost: &c.vh, RouteConfigName: "routes"})
	return w
}

// await waits until the server has seen n RPCs.
func (w *world) await(t testing.TB, n int) {
	t.Helper()
	w.Await(t, fmt.Sprint("RPC ", n), func() bool { return w.rpcs >= n })
}

// plainInvoker and plainStreamer are what gRPC gives to interceptors. They stand for the picker of clusters, too.
func plainInvoker(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, opts ...grpc.CallOption) error {
	decision.FromContext(ctx).Sent("bufconn")
	return cc.Invoke(ctx, method, req, reply, opts...)
}

func plainStreamer(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	decision.FromContext(ctx).Sent("bufconn")
	return cc.NewStream(ctx, desc, method, opts...)
}

func (w *world) picked(ctx context.Context, opts []grpc.CallOption) (err error) {
	if w.pick != nil {
		if err = w.pick(ctx); err != nil && err != errBelow {
			grpcbridge.Finish(opts, err)
		}
	}
	return err
}

func (w *world) invoker(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, opts ...grpc.CallOption) error {
	if err := w.picked(ctx, opts); err != nil {
		return err
	}
	return plainInvoker(ctx, method, req, reply, cc, opts...)
}

func (w *world) streamer(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if err := w.picked(ctx, opts); err != nil {
		return nil, err
	}
	return plainStreamer(ctx, desc, cc, method, opts...)
}

// kind is one of the four kinds of RPC.
type kind struct {
	name string
	desc *grpc.StreamDesc // nil: unary
}

var kinds = []kind{
	{"unary", nil},
	{"server streaming", &grpc.StreamDesc{ServerStreams: true}},
	{"client streaming", &grpc.StreamDesc{ClientStreams: true}},
	{"bidirectional streaming", &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}},
}

func eachKind(t *testing.T, test func(t *testing.T, k kind)) {
	t.Helper()
	for _, k := range kinds {
		xdstest.Parallel(t, k.name, func(t *testing.T) {
			test(t, k)
		})
	}
}

func bytesOf(text string) *wrapperspb.BytesValue {
	return wrapperspb.Bytes([]byte(text))
}

// result is what an application sees of an RPC.
type result struct {
	replies  []string
	header   metadata.MD
	trailer  metadata.MD
	mu       sync.Mutex
	finished []error
	err      error
}

// makeRPC makes an RPC of the kind, with one request, or all of them if the client streams.
func (w *world) makeRPC(ctx context.Context, k kind, method string, requests []string, opts ...grpc.CallOption) *result {
	s, r := w.open(ctx, k, method, opts, requests[0])
	defer func() { // The last of OnFinish is seen by the caller.
		r.mu.Lock()
		defer r.mu.Unlock()
	}()
	if s == nil {
		return r
	}
	if !k.desc.ClientStreams {
		requests = requests[:1]
	}
	for _, request := range requests {
		if err := s.SendMsg(bytesOf(request)); err != nil {
			if err != io.EOF || !k.desc.ClientStreams {
				r.err = err
				return r
			}
			break
		}
	}
	if r.err = s.CloseSend(); r.err == nil {
		r.read(s, k)
	}
	return r
}

// open begins an RPC of the kind. One that is unary, with the given request, or that fails ends with that, and s is nil.
func (w *world) open(ctx context.Context, k kind, method string, opts []grpc.CallOption, request string) (s grpc.ClientStream, r *result) {
	r = new(result)
	opts = append(opts, grpc.Header(&r.header), grpc.Trailer(&r.trailer), grpc.OnFinish(func(err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.finished = append(r.finished, err)
	}))
	if k.desc == nil {
		reply := new(wrapperspb.BytesValue)
		r.err = w.s.Unary(ctx, method, bytesOf(request), reply, w.cc, w.invoker, opts)
		r.replies = []string{string(reply.GetValue())}
		return nil, r
	}
	if s, r.err = w.s.Stream(ctx, k.desc, w.cc, method, w.streamer, opts); r.err != nil {
		return nil, r
	}
	return s, r
}

// read reads the response of a stream.
func (r *result) read(s grpc.ClientStream, k kind) {
	for {
		reply := new(wrapperspb.BytesValue)
		if err := s.RecvMsg(reply); err != nil {
			if err != io.EOF {
				r.err = err
			}
			return
		}
		r.replies = append(r.replies, string(reply.GetValue()))
		if !k.desc.ServerStreams {
			return
		}
	}
}

// receiveAll returns the requests of an RPC of any kind, joined.
func receiveAll(s grpc.ServerStream) (all string, err error) {
	for {
		m := new(wrapperspb.BytesValue)
		if err := s.RecvMsg(m); err == io.EOF {
			return all, nil
		} else if err != nil {
			return "", err
		}
		all += string(m.GetValue())
	}
}

// echo replies with all requests of an RPC of any kind.
func echo(s grpc.ServerStream) error {
	all, err := receiveAll(s)
	if err != nil {
		return err
	}
	return s.SendMsg(bytesOf(all))
}

func echoAll(_ int, s grpc.ServerStream) error { return echo(s) }

// toC is a route of all methods to cluster "c".
func toC() *xdsresource.Route {
	return &xdsresource.Route{Settings: &xdsresource.Settings{Action: &xdsresource.Forward{Clusters: []xdsresource.WeightedCluster{{Name: "c", Weight: 1}}}}}
}

// testFilter is a filter for tests.
type testFilter struct {
	typeURL string
	build   func(name string) httpfilter.ClientInstance
}

func (f *testFilter) TypeURLs() []string { return []string{f.typeURL} }
func (f *testFilter) IsTerminal() bool   { return false }
func (f *testFilter) ParseConfig(*anypb.Any) (httpfilter.Config, error) {
	return nil, fmt.Errorf("not from the wire")
}
func (f *testFilter) NewClientInstance(info httpfilter.ClientInstanceInfo) httpfilter.ClientInstance {
	return f.build(info.Name)
}

// instanceFunc is a ClientInstance without state.
type instanceFunc func(config, override httpfilter.Config) (httpfilter.Interceptor, error)

func (f instanceFunc) ClientInterceptor(config, override httpfilter.Config) (httpfilter.Interceptor, error) {
	return f(config, override)
}

// filterOf is an entry of a filter chain that runs the interceptor.
func filterOf(name string, i httpfilter.InterceptorFunc) httpfilter.Instance {
	return httpfilter.Instance{Name: name, Filter: &testFilter{
		typeURL: "type.googleapis.com/test." + name,
		build: func(string) httpfilter.ClientInstance {
			return instanceFunc(func(_, _ httpfilter.Config) (httpfilter.Interceptor, error) { return i, nil })
		},
	}}
}

// pass is an interceptor that does nothing.
func pass(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
	return next.NewStream(ctx, rpc)
}

func chainOf(filters ...httpfilter.Instance) xdsresource.Listener {
	return xdsresource.Listener{Filters: append(filters, routerEntry)}
}

// routerEntry ends a chain.
var routerEntry = httpfilter.Instance{Name: "router", Filter: routerStub{}}

type routerStub struct{}

func (routerStub) TypeURLs() []string                                { return []string{"type.googleapis.com/test.Router"} }
func (routerStub) IsTerminal() bool                                  { return true }
func (routerStub) ParseConfig(*anypb.Any) (httpfilter.Config, error) { return nil, nil }
