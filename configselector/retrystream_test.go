package configselector_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/rpctrace"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// A stream that keeps sending detects a failure in SendMsg, and continues with the next
// attempt.
func TestASenderContinuesAfterARetry(t *testing.T) {
	t.Parallel()
	failed := make(chan struct{})
	w := newWorld(t, worldConfig{
		routes: []*xdsresource.Route{retried(xdsresource.RetryPolicy{})},
		handle: func(n int, s grpc.ServerStream) error {
			if n == 0 {
				defer close(failed)
				if err := s.RecvMsg(new(wrapperspb.BytesValue)); err != nil {
					return err
				}
				return status.Error(codes.Unavailable, "try again")
			}
			return echo(s)
		},
	})
	s, err := w.s.Stream(testutils.Context(t), kinds[2].desc, w.cc, "/s/m", plainStreamer, nil)
	xdstest.NoError(t, err)
	want := ""
	for i := 0; len(w.seen()) < 2; i++ {
		m := fmt.Sprintln("message", i)
		if err := s.SendMsg(bytesOf(m)); err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
		want += m
		if i == 0 {
			<-failed
		}
	}
	_ = s.CloseSend()
	reply := new(wrapperspb.BytesValue)
	xdstest.NoError(t, s.RecvMsg(reply))
	xdstest.Equal(t, "the second attempt", want, string(reply.GetValue()))
}

// A sender learns by io.EOF that the RPC has ended, but not of attempts that are followed by others.
func TestASenderLearnsOfTheEnd(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		header   bool // the server responds before it fails
		refuse   bool // the picker refuses retries
		attempts int
	}{"after response headers": {true, false, 1}, "after the last attempt": {false, false, 3}, "after a retry that is refused": {false, true, 1}} {
		xdstest.Parallel(t, name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, worldConfig{routes: []*xdsresource.Route{retried(xdsresource.RetryPolicy{})}, handle: func(_ int, s grpc.ServerStream) error {
					if test.header {
						_ = s.SendHeader(nil)
					}
					return errors.Join(s.RecvMsg(bytesOf("")), status.Error(codes.Unavailable, "try again"))
				}})
				w.pick = func(ctx context.Context) error {
					if d := decision.FromContext(ctx); test.refuse && d.Attempt() != nil {
						d.Fail(rpctrace.MaxRetries)
						return status.Error(codes.Unavailable, "too many retries")
					}
					return nil
				}
				s, err := w.s.Stream(t.Context(), kinds[3].desc, w.cc, "/s/m", w.streamer, nil)
				for range 10 {
					if err == nil {
						synctest.Wait()
						err = s.SendMsg(bytesOf("x"))
					}
				}
				xdstest.Equal(t, "how sending ends", io.EOF, err, cmpopts.EquateErrors())
				if err := s.RecvMsg(bytesOf("")); status.Code(err) != codes.Unavailable {
					t.Error(err)
				}
				xdstest.Equal(t, "attempts", test.attempts, len(w.seen()))
			})
		})
	}
}

// A message that only gRPC can encode is sent once.
func TestAPreparedMessageIsSentOnce(t *testing.T) {
	t.Parallel()
	for _, k := range kinds[1:] {
		w := newWorld(t, worldConfig{routes: []*xdsresource.Route{retried(xdsresource.RetryPolicy{})}, handle: func(_ int, s grpc.ServerStream) error {
			return errors.Join(s.RecvMsg(bytesOf("")), status.Error(codes.Unavailable, "try again"))
		}})
		s, err := w.s.Stream(testutils.Context(t), k.desc, w.cc, "/s/m", w.streamer, nil)
		xdstest.NoError(t, err)
		var prepared grpc.PreparedMsg
		xdstest.NoError(t, prepared.Encode(s, bytesOf("x")))
		xdstest.NoError(t, s.SendMsg(&prepared))
		if err := s.RecvMsg(bytesOf("")); status.Code(err) != codes.Unavailable || len(w.seen()) != 1 {
			t.Errorf("%s: %v after %d attempts", k.name, err, len(w.seen()))
		}
	}
}

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

func TestHeaderWaitsForTheAttemptThatIsNotRetried(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{routes: []*xdsresource.Route{retried(xdsresource.RetryPolicy{})}, handle: failing(2, codes.Unavailable)})
	s, err := w.s.Stream(testutils.Context(t), kinds[1].desc, w.cc, "/s/m", plainStreamer, nil)
	xdstest.NoError(t, err)
	xdstest.NoError(t, s.SendMsg(bytesOf("x")))
	if md, err := s.Header(); err != nil || !slices.Equal(md["attempt"], []string{"2"}) {
		t.Errorf("header %v, %v", md, err)
	}
	for err == nil {
		err = s.RecvMsg(bytesOf(""))
	}
	if err != io.EOF {
		t.Error(err)
	}
}
