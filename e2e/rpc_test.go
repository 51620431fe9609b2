package e2e_test

import (
	"context"
	"fmt"
	"io"
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
func dialWith(t testing.TB, target string, bootstrap []byte) *grpc.ClientConn {
	t.Helper()
	b, err := resolver.NewBuilder(bootstrap)
	xdstest.NoError(t, err)
	return dial(t, target, grpc.WithResolvers(b))
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

func eachKindInParallel(t *testing.T, test func(t *testing.T, k kind)) {
	t.Helper()
	for _, k := range kinds {
		parallel(t, string(k), func(t *testing.T) { test(t, k) })
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
		return finish(s, 2, func() error { _, err := s.Recv(); return err })
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
		request := &testgrpc.StreamingOutputCallRequest{ResponseParameters: []*testgrpc.ResponseParameters{{Size: 1}}}
		for range 2 {
			if err := s.Send(request); err != nil {
				break // Recv has the reason.
			}
			if _, err := s.Recv(); err != nil {
				return "", err
			}
		}
		s.CloseSend()
		return finish(s, 0, func() error { _, err := s.Recv(); return err })
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

// echo sends a message and receives the answer.
func echo(s duplex) error {
	if err := s.Send(&testgrpc.StreamingOutputCallRequest{ResponseParameters: []*testgrpc.ResponseParameters{{Size: 1}}}); err != nil {
		return err
	}
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
func finish(s grpc.ClientStream, n int, recv func() error) (string, error) {
	for range n {
		if err := recv(); err != nil {
			return "", err
		}
	}
	if err := recv(); err != io.EOF {
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

// answerer makes a unary RPC to a method and returns the id of the backend that
// answered.
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
	got, err := call(testutils.Context(t), cc, k, grpc.WaitForReady(true))
	if err != nil {
		t.Fatalf("%s RPC: %v", k, err)
	}
	if got != backend.ID() {
		t.Errorf("%s RPC was answered by %q, want %q", k, got, backend.ID())
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

// untilTold makes RPCs until the error of one has all the texts, and none of those in
// without.
func untilTold(t *testing.T, cc *grpc.ClientConn, texts []string, without ...string) {
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
