package balancer_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	grpcresolver "google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/balancer"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/xdstest"
)

const patience = 20 * time.Second

// server is a backend on loopback that answers any RPC, message by message,
// with its name. It counts the connections made to it.
type server struct {
	addr  string
	conns atomic.Int32
	grpc  *grpc.Server
}

func startServer(t testing.TB, name string) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	xdstest.NoError(t, err)
	s := &server{addr: l.Addr().String()}
	s.grpc = grpc.NewServer(answering(name))
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.grpc.Serve(&countingListener{Listener: l, conns: &s.conns})
	}()
	t.Cleanup(func() {
		s.grpc.Stop()
		<-done
	})
	return s
}

// answering has a server answer any RPC, message by message, with a name.
func answering(name string) grpc.ServerOption {
	return grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		for {
			if err := stream.RecvMsg(new(wrapperspb.StringValue)); err != nil {
				return nil // the client has said all it had to
			}
			if err := stream.SendMsg(wrapperspb.String(name)); err != nil {
				return err
			}
		}
	})
}

type countingListener struct {
	net.Listener
	conns *atomic.Int32
}

func (l *countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.conns.Add(1)
	}
	return c, err
}

// route is the decision of the interceptors: one cluster for every RPC.
type route struct {
	version uint64
	cluster string
}

// channel is a real channel; the test plays the resolver and the interceptors.
type channel struct {
	t     testing.TB
	cc    *grpc.ClientConn
	route atomic.Pointer[route]

	mu       sync.Mutex
	resolver grpcresolver.ClientConn // nil until the channel leaves idle
	// state is the last one published, to make the next one from.
	state *balancer.State
}

func dial(t testing.TB, opts ...grpc.DialOption) *channel {
	t.Helper()
	ch := &channel{t: t, state: &balancer.State{}}
	ch.route.Store(&route{})
	resolver := manual.NewBuilderWithScheme("test")
	resolver.BuildCallback = ch.built
	opts = append([]grpc.DialOption{
		grpc.WithResolvers(resolver),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(ch.unary),
		grpc.WithChainStreamInterceptor(ch.stream),
	}, opts...)
	cc, err := grpc.NewClient("test:///backend", opts...)
	xdstest.NoError(t, err)
	ch.cc = cc
	t.Cleanup(func() { cc.Close() })
	return ch
}

// built plays the resolver's Build, which is called again after each idle time.
func (ch *channel) built(_ grpcresolver.Target, cc grpcresolver.ClientConn, _ grpcresolver.BuildOptions) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.resolver = cc
	if ch.state.Version > 0 {
		cc.UpdateState(resolverState(cc, ch.state))
	}
}

func resolverState(cc grpcresolver.ClientConn, s *balancer.State) grpcresolver.State {
	return balancer.SetState(grpcresolver.State{ServiceConfig: cc.ParseServiceConfig(balancer.ServiceConfig)}, s)
}

func (ch *channel) decide(ctx context.Context, method string) context.Context {
	r := ch.route.Load()
	return &decision.Decision{Context: ctx, Method: method, Version: r.version, Cluster: r.cluster}
}

func (ch *channel) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return invoke(ch.decide(ctx, method), method, req, reply, cc, opts...)
}

func (ch *channel) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return open(ch.decide(ctx, method), desc, cc, method, opts...)
}

// publish publishes a snapshot: the last one's clusters with the changes, and cluster for every
// RPC. Its two parts are published in the order of the resolver, or in the other one: the order
// must not matter.
func (ch *channel) publish(cluster string, changes states, balancerFirst ...bool) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	s := *ch.state
	s.Version++
	s.Clusters = changed(s.Clusters, changes)
	s.Default, s.Err = []string{cluster}, nil
	s.Reselect = func(*decision.Decision) (string, error) { return cluster, nil }
	ch.push(&s, cluster, len(balancerFirst) > 0 && balancerFirst[0])
}

func (ch *channel) push(s *balancer.State, cluster string, balancerFirst bool) {
	ch.state = s
	if !balancerFirst {
		ch.route.Store(&route{s.Version, cluster})
	}
	if ch.resolver != nil {
		ch.resolver.UpdateState(resolverState(ch.resolver, s))
	}
	ch.route.Store(&route{s.Version, cluster})
}

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// call makes a unary RPC and returns the name of the backend that answered.
func (ch *channel) call(opts ...grpc.CallOption) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	reply := new(wrapperspb.StringValue)
	err := ch.cc.Invoke(ctx, "/test.Service/Method", wrapperspb.String("hello"), reply, opts...)
	return reply.GetValue(), err
}

// keepCalling makes RPCs, none of which may fail, on n goroutines until stop is called.
func (ch *channel) keepCalling(n int) (stop func()) {
	done := make(chan struct{})
	var callers sync.WaitGroup
	for range n {
		callers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				if _, err := ch.call(); err != nil {
					ch.t.Errorf("RPC %d failed: %v", i, err)
					return
				}
			}
		})
	}
	return func() {
		close(done)
		callers.Wait()
	}
}

func (ch *channel) expect(want string) {
	ch.t.Helper()
	if got, err := ch.call(); err != nil || got != want {
		ch.t.Errorf("an RPC was answered by %q (error %v), want %q", got, err, want)
	}
}

// await waits until the channel is in the state.
func (ch *channel) await(want connectivity.State) {
	ch.t.Helper()
	ctx := testContext(ch.t)
	for s := ch.cc.GetState(); s != want; s = ch.cc.GetState() {
		if !ch.cc.WaitForStateChange(ctx, s) {
			ch.t.Fatalf("the channel is %v, not %v", s, want)
		}
	}
}

// stream is an RPC that continues until it is closed.
type stream struct{ grpc.ClientStream }

func (ch *channel) open() (*stream, error) {
	desc := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	cs, err := ch.cc.NewStream(testContext(ch.t), desc, "/test.Service/Stream")
	return &stream{cs}, err
}

func (s *stream) exchange() (string, error) {
	if err := s.SendMsg(wrapperspb.String("hello")); err != nil {
		return "", fmt.Errorf("send: %w", err)
	}
	reply := new(wrapperspb.StringValue)
	err := s.RecvMsg(reply)
	return reply.GetValue(), err
}
