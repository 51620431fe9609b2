package configselector_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// hanging does not answer the first times RPCs, and then echoes.
func hanging(times int) func(int, grpc.ServerStream) error {
	return func(n int, s grpc.ServerStream) error {
		if n < times {
			<-s.Context().Done()
			return s.Context().Err()
		}
		return echo(s)
	}
}

// eachKindInABubble runs the test for each kind of RPC with a clock of its own.
func eachKindInABubble(t *testing.T, test func(t *testing.T, k kind)) {
	t.Helper()
	for _, k := range kinds {
		xdstest.Parallel(t, k.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, k) })
		})
	}
}

// TestPerTryTimeoutsBeginWithTheEndOfTheRequest: Envoy, RetryPolicy.per_try_idle_timeout: "similar to
// per_try_timeout, this idle timeout does not start until after both the entire request has been
// received by the router and a connection pool connection has been obtained".
func TestPerTryTimeoutsBeginWithTheEndOfTheRequest(t *testing.T) {
	t.Parallel()
	xdstest.Parallel(t, "the request", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, worldConfig{routes: []*xdsresource.Route{retried(xdsresource.RetryPolicy{
				MaxAttempts: 2, PerTryTimeout: time.Second, PerTryIdleTimeout: time.Second,
			})}, handle: func(n int, s grpc.ServerStream) error {
				if n == 0 {
					return errors.Join(s.RecvMsg(bytesOf("")), status.Error(codes.Unavailable, "try again"))
				}
				return echo(s)
			}})
			s, err := w.s.Stream(t.Context(), kinds[2].desc, w.cc, "/s/m", plainStreamer, nil)
			xdstest.NoError(t, err)
			for range 3 {
				time.Sleep(time.Minute)
				xdstest.NoError(t, s.SendMsg(bytesOf("x")))
			}
			xdstest.NoError(t, s.CloseSend())
			reply := bytesOf("")
			if err := s.RecvMsg(reply); err != nil || string(reply.GetValue()) != "xxx" {
				t.Errorf("%q, %v", reply.GetValue(), err)
			}
		})
	})
	xdstest.Parallel(t, "the request, which is one message", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, worldConfig{routes: []*xdsresource.Route{retried(xdsresource.RetryPolicy{MaxAttempts: 1, PerTryTimeout: time.Second})}, handle: hanging(1)})
			s, err := w.s.Stream(t.Context(), kinds[1].desc, w.cc, "/s/m", plainStreamer, nil)
			xdstest.NoError(t, err)
			xdstest.NoError(t, s.SendMsg(bytesOf("x")))
			if err := s.RecvMsg(bytesOf("")); status.Code(err) != codes.DeadlineExceeded {
				t.Error(err)
			}
		})
	})
	xdstest.Parallel(t, "the connection", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, worldConfig{routes: []*xdsresource.Route{retried(xdsresource.RetryPolicy{
				MaxAttempts: 1, PerTryTimeout: time.Second, PerTryIdleTimeout: time.Second,
			})}})
			err := w.s.Unary(t.Context(), "/s/m", bytesOf("x"), bytesOf(""), w.cc,
				func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, opts ...grpc.CallOption) error {
					time.Sleep(time.Minute)
					return plainInvoker(ctx, method, req, reply, cc, opts...)
				}, nil)
			if err != nil {
				t.Error(err)
			}
		})
	})
}

// TestPerTryIdleTimeout: Envoy, RetryPolicy.per_try_idle_timeout: unlike per_try_timeout, "the idle
// timer continues once the response starts".
func TestPerTryIdleTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		w := newWorld(t, worldConfig{
			routes: []*xdsresource.Route{retried(xdsresource.RetryPolicy{
				Codes: xdsresource.NewCodeSet(codes.DeadlineExceeded), PerTryIdleTimeout: 3 * time.Second,
			})},
			handle: func(n int, s grpc.ServerStream) error {
				for range 4 {
					time.Sleep(2 * time.Second)
					if err := s.SendMsg(bytesOf("x")); err != nil {
						return err
					}
				}
				<-s.Context().Done()
				ended <- s.Context().Err()
				return nil
			},
		})
		r := w.makeRPC(t.Context(), kinds[1], "/s/m", []string{"one"})
		if len(r.replies) != 4 || status.Code(r.err) != codes.DeadlineExceeded || !strings.Contains(r.err.Error(), "received nothing for 3s, the per_try_idle_timeout") {
			t.Errorf("replies %q, %v", r.replies, r.err)
		}
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the server's context ended with %v", err)
		}
		xdstest.Equal(t, "attempts, although the response had started", 1, len(w.seen()))
	})
}

// An attempt that was answered in time is not ended, however late the application reads.
func TestPerTryTimeoutOfASlowReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, worldConfig{routes: []*xdsresource.Route{retried(xdsresource.RetryPolicy{PerTryTimeout: time.Second})}})
		s, err := w.s.Stream(t.Context(), kinds[3].desc, w.cc, "/s/m", plainStreamer, nil)
		xdstest.NoError(t, err)
		xdstest.NoError(t, errors.Join(s.SendMsg(bytesOf("x")), s.CloseSend()))
		time.Sleep(time.Minute)
		reply := bytesOf("")
		if err := s.RecvMsg(reply); err != nil || string(reply.GetValue()) != "x" {
			t.Errorf("%q, %v", reply.GetValue(), err)
		}
		if err := s.RecvMsg(reply); err != io.EOF {
			t.Error(err)
		}
	})
}

// TestRetryWithoutResponse: Envoy, retry_on reset: the server "does not respond at all".
func TestRetryWithoutResponse(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		handle   func(w *world, n int, s grpc.ServerStream) error
		attempts int
		want     codes.Code
	}{
		{"a lost connection", func(w *world, n int, s grpc.ServerStream) error {
			if n == 0 {
				w.disconnect()
				<-s.Context().Done()
			}
			return echo(s)
		}, 2, codes.OK},
		{"a response", func(*world, int, grpc.ServerStream) error { return status.Error(codes.Unavailable, "no") }, 1, codes.Unavailable},
	} {
		xdstest.Parallel(t, test.name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, k kind) {
				route := retried(xdsresource.RetryPolicy{NoResponse: true})
				route.Retry.Codes = 0
				var w *world
				ready := make(chan struct{})
				w = newWorld(t, worldConfig{routes: []*xdsresource.Route{route}, handle: func(n int, s grpc.ServerStream) error {
					<-ready
					return test.handle(w, n, s)
				}})
				close(ready)
				r := w.makeRPC(t.Context(), k, "/s/m", []string{"one"}, grpc.WaitForReady(true))
				if status.Code(r.err) != test.want || len(w.seen()) != test.attempts {
					t.Errorf("%v after %d attempts, want %v after %d", r.err, len(w.seen()), test.want, test.attempts)
				}
			})
		})
	}
}
