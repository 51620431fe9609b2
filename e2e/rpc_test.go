package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdstest"
	rpcload "github.com/dynxds/dynxds/mesh/meshtest/load"
	"github.com/dynxds/dynxds/resolver"
	"github.com/dynxds/dynxds/testutils"
)

var dialInsecure = grpc.WithTransportCredentials(insecure.NewCredentials())

func dial(t testing.TB, target string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	cc, err := grpc.NewClient(target, append([]grpc.DialOption{dialInsecure}, opts...)...)
	xdstest.NoError(t, err)
	t.Cleanup(func() { cc.Close() })
	return cc
}

// dialWith opens a channel to the target with a bootstrap.
func dialWith(t testing.TB, target string, bootstrap []byte, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	return dial(t, target, append([]grpc.DialOption{withBootstrap(t, bootstrap)}, opts...)...)
}

// withBootstrap is the resolver for a bootstrap, for channels to share.
func withBootstrap(t testing.TB, bootstrap []byte) grpc.DialOption {
	t.Helper()
	b, err := resolver.NewBuilder(bootstrap)
	xdstest.NoError(t, err)
	return grpc.WithResolvers(b)
}

// kind is the name of one of load.Kinds.
type kind string

const (
	unary           kind = "unary"
	serverStreaming kind = "server streaming"
	clientStreaming kind = "client streaming"
	bidiStreaming   kind = "bidirectional"
)

var kinds = []kind{unary, serverStreaming, clientStreaming, bidiStreaming}

const (
	unaryMethod = "/grpc.testing.TestService/UnaryCall"
	emptyMethod = "/grpc.testing.TestService/EmptyCall"
)

func eachKind(t *testing.T, test func(t *testing.T, k kind)) {
	t.Helper()
	for _, k := range kinds {
		t.Run(string(k), func(t *testing.T) { test(t, k) })
	}
}

// call makes one whole RPC and returns the id of the backend that answered.
func call(ctx context.Context, cc *grpc.ClientConn, k kind, opts ...grpc.CallOption) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	i := slices.IndexFunc(rpcload.Kinds, func(of rpcload.Kind) bool { return of.Name == string(k) })
	header, err := rpcload.Kinds[i].Do(ctx, testgrpc.NewTestServiceClient(cc), opts...)
	return backendID(header), err
}

// duplex is a stream that a test holds open.
type duplex = testgrpc.TestService_FullDuplexCallClient

// openStream opens a stream on which a message was answered.
func openStream(ctx context.Context, cc *grpc.ClientConn, opts ...grpc.CallOption) (duplex, error) {
	s, err := testgrpc.NewTestServiceClient(cc).FullDuplexCall(ctx, opts...)
	if err != nil {
		return nil, err
	}
	return s, echo(s)
}

// echo sends a message and receives the answer. If the first fails, the second has the reason.
func echo(s duplex) error {
	_ = s.Send(&testgrpc.StreamingOutputCallRequest{ResponseParameters: []*testgrpc.ResponseParameters{{Size: 1}}})
	_, err := s.Recv()
	return err
}

func backendID(header metadata.MD) string {
	return strings.Join(header.Get(testutils.BackendIDHeader), ",")
}

// reply is what an RPC's call options report.
type reply struct {
	header, trailer metadata.MD
	err             error
}

func callFor(ctx context.Context, cc *grpc.ClientConn, k kind, opts ...grpc.CallOption) reply {
	var r reply
	opts = append(opts, grpc.Header(&r.header), grpc.Trailer(&r.trailer), grpc.WaitForReady(true))
	_, r.err = call(ctx, cc, k, opts...)
	return r
}

// backendFor returns who answers an RPC with the metadata.
func backendFor(ctx context.Context, t testing.TB, cc *grpc.ClientConn, k kind, md ...string) string {
	t.Helper()
	id, err := call(metadata.AppendToOutgoingContext(ctx, md...), cc, k, grpc.WaitForReady(true))
	if err != nil {
		t.Fatalf("%s RPC with %v: %v", k, md, err)
	}
	return id
}

// answerer makes a unary RPC to a method and returns the id of the backend that answered.
func answerer(t testing.TB, cc *grpc.ClientConn, method string) string {
	t.Helper()
	var header metadata.MD
	if err := cc.Invoke(testutils.Context(t), method, empty, new(testgrpc.Empty), grpc.Header(&header), grpc.WaitForReady(true)); err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	return backendID(header)
}

// mustReach makes an RPC and checks which backend answers it.
func mustReach(t testing.TB, cc *grpc.ClientConn, k kind, backend *testutils.Backend) {
	t.Helper()
	if got := backendFor(testutils.Context(t), t, cc, k); got != backend.ID() {
		t.Errorf("%s RPC was answered by %q, want %q", k, got, backend.ID())
	}
}

// mustReachByEachKind is mustReach for an RPC of each kind.
func mustReachByEachKind(t testing.TB, cc *grpc.ClientConn, backend *testutils.Backend) {
	t.Helper()
	for _, k := range kinds {
		mustReach(t, cc, k, backend)
	}
}

// mustFail makes a unary RPC and checks how it fails.
func mustFail(t testing.TB, cc *grpc.ClientConn, texts ...string) {
	t.Helper()
	_, err := call(testutils.Context(t), cc, unary)
	checkStatus(t, err, codes.Unavailable, texts...)
}

func checkStatus(t testing.TB, err error, code codes.Code, texts ...string) {
	t.Helper()
	if status.Code(err) != code {
		t.Fatalf("status code %v, want %v: %v", status.Code(err), code, err)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error does not mention %q:\n%v", text, err)
		}
	}
}

// until makes unary RPCs until one ends as wanted.
func until(t testing.TB, cc *grpc.ClientConn, want string, ok func(id string, err error) bool, opts ...grpc.CallOption) {
	t.Helper()
	ctx := testutils.Context(t)
	for {
		id, err := call(ctx, cc, unary, opts...)
		if ok(id, err) {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("no RPC %s; the last one was answered by %q: %v", want, id, err)
		}
	}
}

// reachAll makes RPCs, none of which may fail, until each of the backends has got one.
func reachAll(t testing.TB, cc *grpc.ClientConn, backends ...*testutils.Backend) {
	t.Helper()
	ctx := testutils.Context(t)
	for _, b := range backends {
		for b.Count() == 0 {
			backendFor(ctx, t, cc, unary)
		}
	}
}

// untilFailed makes RPCs until one fails with UNAVAILABLE, and checks the error.
func untilFailed(t testing.TB, cc *grpc.ClientConn, texts ...string) {
	t.Helper()
	until(t, cc, "failed", func(_ string, err error) bool {
		if err != nil {
			checkStatus(t, err, codes.Unavailable, texts...)
		}
		return err != nil
	})
}

// untilError makes RPCs until the error of one has all the texts, and none of those in
// without.
func untilError(t *testing.T, cc *grpc.ClientConn, texts []string, without ...string) {
	t.Helper()
	until(t, cc, fmt.Sprintf("failed with %q and without %q", texts, without), func(_ string, err error) bool {
		return err != nil && containsAll(err.Error(), texts...) && !containsAny(err.Error(), without...)
	})
}

func containsAll(text string, parts ...string) bool {
	return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(text, p) })
}

func containsAny(text string, parts ...string) bool {
	return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(text, p) })
}

// noStats is a stats handler that does nothing, for others to embed.
type noStats struct{}

func (noStats) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (noStats) HandleRPC(context.Context, stats.RPCStats)                         {}
func (noStats) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (noStats) HandleConn(context.Context, stats.ConnStats)                       {}

// load is constant traffic of every kind on a channel.
type load struct{ *rpcload.Load }

func startLoad(t testing.TB, cc *grpc.ClientConn) load {
	t.Helper()
	if !isUnder(t, loopback) && !isUnder(t, slowLink) {
		t.Fatal("a test in which no RPC may fail has to run over links with and without latency: see overLinks")
	}
	return load{rpcload.Start(t, cc)}
}

// loadOn starts a load once the channel is connected, and waits until the backends answer
// it.
func loadOn(t testing.TB, cc *grpc.ClientConn, backends ...*testutils.Backend) load {
	t.Helper()
	first := backendFor(testutils.Context(t), t, cc, unary)
	if !slices.ContainsFunc(backends, func(b *testutils.Backend) bool { return b.ID() == first }) {
		t.Errorf("the first RPC was answered by %q", first)
	}
	l := startLoad(t, cc)
	l.await(t, backends...)
	return l
}

// await returns when the backends, and no others, have answered the last RPCs.
func (l load) await(t testing.TB, backends ...*testutils.Backend) {
	t.Helper()
	ids := make([]string, len(backends))
	for i, b := range backends {
		ids[i] = b.ID()
	}
	l.WaitForBackends(t, ids...)
}
