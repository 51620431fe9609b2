package testutils_test

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

const unaryMethod = "/grpc.testing.TestService/UnaryCall"

func dial(t *testing.T, addr string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	xdstest.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func testClient(t *testing.T, b *testutils.Backend) testpb.TestServiceClient {
	t.Helper()
	return testpb.NewTestServiceClient(dial(t, b.Addr()))
}

func wantID(t *testing.T, header metadata.MD, want string) {
	t.Helper()
	if got := header.Get(testutils.BackendIDHeader); len(got) != 1 || got[0] != want {
		t.Errorf("%s is %q, want %q", testutils.BackendIDHeader, got, want)
	}
}

func TestBackend_RemembersTheLastRPC(t *testing.T) {
	t.Parallel()
	ctx, b := testutils.Context(t), testutils.StartBackend(t, "b")
	if got := b.Last(); got.Method != "" {
		t.Errorf("before any RPC: %+v", got)
	}
	ctx = metadata.AppendToOutgoingContext(ctx, "x-key", "value")
	client := testpb.NewTestServiceClient(dial(t, b.Addr()))
	_, err := client.UnaryCall(ctx, &testpb.SimpleRequest{}, grpc.CallAuthority("authority.example.com"))
	xdstest.NoError(t, err)
	last, deadline := b.Last(), time.Time{}
	deadline, _ = ctx.Deadline()
	if last.Method != unaryMethod || last.Authority != "authority.example.com" || strings.Join(last.Metadata.Get("x-key"), "") != "value" {
		t.Errorf("last RPC: %+v", last)
	}
	if d := last.Deadline.Sub(deadline); last.Deadline.IsZero() || d.Abs() > 10*time.Second {
		t.Errorf("deadline %v, the client's is %v", last.Deadline, deadline)
	}
}

func TestBackend_Fail(t *testing.T) {
	t.Parallel()
	ctx, b := testutils.Context(t), testutils.StartBackend(t, "b")
	client := testClient(t, b)
	b.Fail(status.Error(codes.DataLoss, "lost"))
	var header metadata.MD
	if _, err := client.EmptyCall(ctx, &testpb.Empty{}, grpc.Header(&header)); status.Code(err) != codes.DataLoss {
		t.Errorf("unary: %v", err)
	}
	wantID(t, header, "b")
	stream, err := client.FullDuplexCall(ctx)
	xdstest.NoError(t, err)
	if _, err := stream.Recv(); status.Code(err) != codes.DataLoss {
		t.Errorf("streaming: %v", err)
	}
	b.Fail(nil)
	_, err = client.EmptyCall(ctx, &testpb.Empty{})
	xdstest.NoError(t, err)
	// And as the request asks for it.
	asked := &testpb.EchoStatus{Code: int32(codes.NotFound), Message: "asked"}
	if _, err := client.UnaryCall(ctx, &testpb.SimpleRequest{ResponseStatus: asked}); status.Code(err) != codes.NotFound {
		t.Errorf("asked to fail: %v", err)
	}
	if _, err := client.UnaryCall(ctx, &testpb.SimpleRequest{ResponseSize: 1 << 30}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("asked for 1 GiB: %v", err)
	}
}

func TestBackend_StopAndRestart(t *testing.T) {
	t.Parallel()
	ctx, b := testutils.Context(t), testutils.StartBackend(t, "b")
	client := testClient(t, b)
	release := xdstest.Hold(b)
	defer release()
	ended := make(chan error, 1)
	go func() {
		_, err := client.EmptyCall(ctx, &testpb.Empty{})
		ended <- err
	}()
	xdstest.NoError(t, b.Wait(ctx, 1))
	b.Stop()
	b.Stop()
	if err := <-ended; status.Code(err) != codes.Unavailable {
		t.Errorf("the RPC under way ended with %v", err)
	}
	if conn, err := net.Dial("tcp", b.Addr()); err == nil {
		conn.Close()
		t.Error("a stopped backend accepts connections")
	}
	release()
	xdstest.NoError(t, b.Restart())
	_, err := client.EmptyCall(ctx, &testpb.Empty{}, grpc.WaitForReady(true))
	xdstest.NoError(t, err)
	xdstest.Equal(t, "RPCs over both runs", 2, b.Count())
}

func TestBackend_GracefulStopLetsRPCsEnd(t *testing.T) {
	t.Parallel()
	ctx, b := testutils.Context(t), testutils.StartBackend(t, "b")
	client := testClient(t, b)
	stream, err := client.FullDuplexCall(ctx)
	xdstest.NoError(t, err)
	_, err = stream.Header()
	xdstest.NoError(t, err)
	stopped := make(chan struct{})
	go func() { defer close(stopped); b.GracefulStop() }()
	xdstest.NoError(t, stream.Send(&testpb.StreamingOutputCallRequest{ResponseParameters: []*testpb.ResponseParameters{{Size: 1}}}))
	_, err = stream.Recv()
	xdstest.NoError(t, err)
	xdstest.NoError(t, stream.CloseSend())
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the RPC under way ended with %v", err)
	}
	<-stopped
}
