package grpcbridge_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	grpcresolver "google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/xdstest"
)

const scheme = "bridgetest"

// patience is longer than anything here takes, short of a hang.
const patience = 30 * time.Second

func TestMain(m *testing.M) {
	if !grpcbridge.Install(scheme) {
		fmt.Fprintln(os.Stderr, "this gRPC has no hook for dial options per target")
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// fakeBuilder is a resolver builder of ours. The test controls its resolvers.
type fakeBuilder struct {
	scheme string
	built  chan *fakeResolver
}

func newFakeBuilder() *fakeBuilder {
	return &fakeBuilder{scheme: scheme, built: make(chan *fakeResolver, 16)}
}

func (b *fakeBuilder) Scheme() string { return b.scheme }

func (*fakeBuilder) BridgedToDynxds() {}

func (b *fakeBuilder) Build(_ grpcresolver.Target, rcc grpcresolver.ClientConn, _ grpcresolver.BuildOptions) (grpcresolver.Resolver, error) {
	ch, err := grpcbridge.Attach(rcc)
	if err != nil {
		return nil, err
	}
	r := &fakeResolver{Channel: ch, closed: make(chan struct{})}
	b.built <- r
	return r, nil
}

// next returns the next resolver that gRPC has built.
func (b *fakeBuilder) next(t *testing.T) *fakeResolver {
	t.Helper()
	select {
	case r := <-b.built:
		return r
	case <-time.After(patience):
		t.Fatal("gRPC built no resolver")
		return nil
	}
}

type fakeResolver struct {
	*grpcbridge.Channel
	closed chan struct{}
}

func (*fakeResolver) ResolveNow(grpcresolver.ResolveNowOptions) {}

func (r *fakeResolver) Close() {
	r.Detach()
	close(r.closed)
}

// fakeRunner ends every RPC by itself and remembers it.
type fakeRunner struct {
	mu      sync.Mutex
	methods []string
	err     error
}

func (r *fakeRunner) Unary(_ context.Context, method string, _, _ any, _ *grpc.ClientConn, _ grpc.UnaryInvoker, opts []grpc.CallOption) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.methods = append(r.methods, method)
	grpcbridge.Finish(opts, r.err)
	return r.err
}

func (r *fakeRunner) Stream(ctx context.Context, _ *grpc.StreamDesc, cc *grpc.ClientConn, method string, _ grpc.Streamer, opts []grpc.CallOption) (grpc.ClientStream, error) {
	return nil, r.Unary(ctx, method, nil, nil, cc, nil, opts)
}

func (r *fakeRunner) ran() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.methods
}

func dial(t testing.TB, b grpcresolver.Builder, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	opts = append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithResolvers(b),
	}, opts...)
	cc, err := grpc.NewClient(b.Scheme()+":///service.example.com", opts...)
	xdstest.NoError(t, err)
	t.Cleanup(func() { cc.Close() })
	return cc
}

// call makes an RPC, unary or streaming.
func call(ctx context.Context, cc *grpc.ClientConn, streaming bool, opts ...grpc.CallOption) error {
	if streaming {
		_, err := cc.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/s/Stream", opts...)
		return err
	}
	return cc.Invoke(ctx, "/s/Unary", nil, nil, opts...)
}

// background makes an RPC that is expected to wait; its error arrives on the
// channel.
func background(ctx context.Context, cc *grpc.ClientConn, streaming bool, opts ...grpc.CallOption) <-chan error {
	done := make(chan error, 1)
	go func() { done <- call(ctx, cc, streaming, opts...) }()
	return done
}
