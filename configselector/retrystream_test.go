package configselector_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// A sender that waits for the server when the attempt fails continues with the attempt that the receiver begins.
func TestASenderThatWaitsWhenAnAttemptFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, worldConfig{
			routes: []*xdsresource.Route{retried(xdsresource.RetryPolicy{})},
			handle: func(n int, s grpc.ServerStream) error {
				if n == 0 {
					time.Sleep(time.Second)
					return status.Error(codes.Unavailable, "try again")
				}
				return echo(s)
			},
		})
		s, err := w.s.Stream(t.Context(), kinds[3].desc, w.cc, "/s/m", plainStreamer, []grpc.CallOption{grpc.MaxRetryRPCBufferSize(1 << 20)})
		xdstest.NoError(t, err)
		reply, received := bytesOf(""), make(chan error, 1)
		go func() { received <- s.RecvMsg(reply) }()
		m := strings.Repeat("x", 200<<10)
		for range 3 {
			xdstest.NoError(t, s.SendMsg(bytesOf(m)))
		}
		xdstest.NoError(t, s.CloseSend())
		xdstest.NoError(t, <-received)
		xdstest.Equal(t, "bytes that come back", 3*len(m), len(reply.GetValue()))
	})
}

// Sender and receiver use a stream concurrently while attempts fail.
func TestConcurrentSenderAndReceiverDuringRetries(t *testing.T) {
	t.Parallel()
	for range 20 {
		w := newWorld(t, worldConfig{
			routes: []*xdsresource.Route{retried(xdsresource.RetryPolicy{MaxAttempts: 5})},
			handle: func(n int, s grpc.ServerStream) error {
				if n < 4 {
					for range n {
						if s.RecvMsg(new(wrapperspb.BytesValue)) != nil {
							break
						}
					}
					return status.Error(codes.Unavailable, "try again")
				}
				return echo(s)
			},
		})
		s, err := w.s.Stream(testutils.Context(t), kinds[3].desc, w.cc, "/s/m", plainStreamer, nil)
		xdstest.NoError(t, err)
		reply := new(wrapperspb.BytesValue)
		received := make(chan error, 1)
		go func() { received <- s.RecvMsg(reply) }()
		want := ""
		m := bytesOf("")
		for i := range 20 {
			m.Value = fmt.Appendln(m.Value[:0], "message", i) // The message is used again.
			if err := s.SendMsg(m); err != nil {
				t.Fatalf("message %d: %v", i, err)
			}
			want += string(m.Value)
		}
		_ = s.CloseSend()
		xdstest.NoError(t, <-received)
		if got := string(reply.GetValue()); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
}
