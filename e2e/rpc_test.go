package e2e_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdstest"
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

// kind is one of the four kinds of RPC.
type kind string

const (
	unary           kind = "unary"
	serverStreaming kind = "server streaming"
	clientStreaming kind = "client streaming"
	bidiStreaming   kind = "bidirectional streaming"
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

// failTimes makes a backend fail its next n RPCs with UNAVAILABLE, and counts all that it gets.
func failTimes(b *testutils.Backend, n int32) *atomic.Int32 {
	got := new(atomic.Int32)
	b.SetBehaviour(func(context.Context, testutils.RPC) error {
		if got.Add(1) <= n {
			return testutils.TrailersOnly(status.Error(codes.Unavailable, "not yet"))
		}
		return nil
	})
	return got
}

func eachKindInParallel(t *testing.T, test func(t *testing.T, k kind)) {
	t.Helper()
	for _, k := range kinds {
		xdstest.Parallel(t, string(k), func(t *testing.T) { test(t, k) })
	}
}

// call makes one whole RPC and returns the id of the backend that answered.
func call(ctx context.Context, cc *grpc.ClientConn, k kind, opts ...grpc.CallOption) (string, error) {
	client := testgrpc.NewTestServiceClient(cc)
	if k == unary {
		var header metadata.MD
		_, err := client.UnaryCall(ctx, new(testgrpc.SimpleRequest), append(opts, grpc.Header(&header))...)
		return backendID(header), err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	switch k {
	case serverStreaming:
		request := &testgrpc.StreamingOutputCallRequest{ResponseParameters: []*testgrpc.ResponseParameters{{Size: 1}, {Size: 2}}}
		s, err := client.StreamingOutputCall(ctx, request, opts...)
		if err != nil {
			return "", err
		}
		return finish(s, 2)
	case clientStreaming:
		s, err := client.StreamingInputCall(ctx, opts...)
		if err != nil {
			return "", err
		}
		for range 2 {
			if err := s.Send(new(testgrpc.StreamingInputCallRequest)); err != nil {
				break // CloseAndRecv has the reason.
			}
		}
		if _, err = s.CloseAndRecv(); err != nil {
			return "", err
		}
		header, err := s.Header()
		return backendID(header), err
	default:
		s, err := client.FullDuplexCall(ctx, opts...)
		if err != nil {
			return "", err
		}
		for range 2 {
			if err := echo(s); err != nil {
				return "", err
			}
		}
		s.CloseSend()
		return finish(s, 0)
	}
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

// openStreams opens n streams, on which no message was sent.
func openStreams(ctx context.Context, t testing.TB, cc *grpc.ClientConn, n int) (streams []duplex) {
	t.Helper()
	for range n {
		s, err := testgrpc.NewTestServiceClient(cc).FullDuplexCall(ctx, grpc.WaitForReady(true))
		xdstest.NoError(t, err)
		streams = append(streams, s)
	}
	return streams
}

// echo sends a message and receives the answer. If the first fails, the second has the reason.
func echo(s duplex) error {
	_ = s.Send(&testgrpc.StreamingOutputCallRequest{ResponseParameters: []*testgrpc.ResponseParameters{{Size: 1}}})
	_, err := s.Recv()
	return err
}

// end ends a stream from the client's side.
func end(t testing.TB, s duplex) {
	t.Helper()
	xdstest.NoError(t, s.CloseSend())
	if _, err := s.Recv(); err != io.EOF {
		t.Errorf("the stream ended with %v", err)
	}
}

// finish reads n messages and the end of the stream.
func finish(s grpc.ServerStreamingClient[testgrpc.StreamingOutputCallResponse], n int) (string, error) {
	for range n {
		if _, err := s.Recv(); err != nil {
			return "", err
		}
	}
	if _, err := s.Recv(); err != io.EOF {
		return "", fmt.Errorf("after the last message: %w", err)
	}
	header, err := s.Header()
	return backendID(header), err
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

// untilReached makes RPCs until the backend answers one. Some fail where another
// backend has just stopped, or where the first has to connect within its deadline.
func untilReached(t testing.TB, cc *grpc.ClientConn, backend *testutils.Backend) {
	t.Helper()
	until(t, cc, "reached "+backend.ID(), func(id string, err error) bool {
		return err == nil && id == backend.ID()
	}, grpc.WaitForReady(true))
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
type load struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup

	xdstest.State
	total, failed int
	errs          []string
	seen          map[string]int // RPCs by backend since the last reset
}

// pace is the time between two RPCs of one kind of a load. Several loads run at a time, beside what they are for.
const pace = 5 * time.Millisecond

// startLoad runs one loop for each of the kinds until the load is stopped.
func startLoad(t testing.TB, cc *grpc.ClientConn) *load {
	t.Helper()
	if !isUnder(t, loopback) && !isUnder(t, slowLink) {
		t.Fatal("a test in which no RPC may fail has to run over links with and without latency: see overLinks")
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{cancel: cancel, seen: map[string]int{}}
	for _, k := range kinds {
		l.wg.Go(func() {
			ticker := time.NewTicker(pace)
			defer ticker.Stop()
			for ctx.Err() == nil {
				// The RPC's own context: stopping the load lets it end.
				id, err := call(context.Background(), cc, k)
				l.record(k, id, err)
				<-ticker.C
			}
		})
	}
	t.Cleanup(func() { cancel(); l.wg.Wait() })
	return l
}

// loadOn starts a load once the channel is connected, and waits until the backends answer
// it.
func loadOn(t testing.TB, cc *grpc.ClientConn, backends ...*testutils.Backend) *load {
	t.Helper()
	first := backendFor(testutils.Context(t), t, cc, unary)
	if !slices.ContainsFunc(backends, func(b *testutils.Backend) bool { return b.ID() == first }) {
		t.Errorf("the first RPC was answered by %q", first)
	}
	l := startLoad(t, cc)
	l.await(t, backends...)
	return l
}

func (l *load) record(k kind, id string, err error) {
	l.Change(func() {
		l.total++
		if err == nil {
			l.seen[id]++
		} else if l.failed++; len(l.errs) < 5 {
			l.errs = append(l.errs, fmt.Sprintf("%s: %v", k, err))
		}
	})
}

// await returns when the backends, and no others, have answered the last RPCs.
func (l *load) await(t testing.TB, backends ...*testutils.Backend) {
	t.Helper()
	var want []string
	for _, b := range backends {
		want = append(want, b.ID())
	}
	slices.Sort(want)
	l.Change(func() { clear(l.seen) })
	var got []string
	defer func() {
		if t.Failed() {
			l.Change(func() { t.Logf("the last RPCs were answered by %q; failures: %q", got, l.errs) })
		}
	}()
	l.Await(t, fmt.Sprintf("RPCs that %q alone answer", want), func() bool {
		answered := 0
		for _, n := range l.seen {
			answered += n
		}
		if answered < 40 {
			return false
		}
		got = slices.Sorted(maps.Keys(l.seen))
		clear(l.seen)
		return slices.Equal(got, want)
	})
}

// stop ends the load and checks that no RPC failed.
func (l *load) stop(t testing.TB) {
	t.Helper()
	l.cancel()
	l.wg.Wait()
	if l.failed > 0 {
		t.Errorf("%d of %d RPCs failed, for example:\n%s", l.failed, l.total, strings.Join(l.errs, "\n"))
	}
}
