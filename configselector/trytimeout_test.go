package configselector_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
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

// TestPerTryTimeout: Envoy, RetryPolicy.per_try_timeout: it bounds each attempt, the first and the
// last included, until the response starts; retried by retry_on deadline-exceeded, and by
// Envoy's conditions for an attempt that was reset.
func TestPerTryTimeout(t *testing.T) {
	t.Parallel()
	const second = time.Second
	onDeadline := xdsresource.NewCodeSet(codes.DeadlineExceeded)
	onUnavailable := xdsresource.NewCodeSet(codes.Unavailable)
	for _, test := range []struct {
		name     string
		policy   xdsresource.RetryPolicy
		handle   func(int, grpc.ServerStream) error
		timeout  time.Duration // of the RPC; 0: none
		dial     []grpc.DialOption
		want     codes.Code
		message  string
		attempts int
		after    time.Duration // the RPC ends, without the wait for retries
	}{
		{name: "an answer in time", policy: xdsresource.RetryPolicy{Codes: onDeadline, PerTryTimeout: second}, handle: hanging(0), attempts: 1},
		{name: "retried by deadline-exceeded", policy: xdsresource.RetryPolicy{Codes: onDeadline, PerTryTimeout: second}, handle: hanging(2), attempts: 3, after: 2 * second},
		{name: "retried by reset", policy: xdsresource.RetryPolicy{Codes: onUnavailable, NoResponse: true, PerTryTimeout: second}, handle: hanging(2), attempts: 3, after: 2 * second},
		{name: "what an attempt holds ends with it", policy: xdsresource.RetryPolicy{Codes: onUnavailable, PerTryTimeout: time.Minute}, handle: failing(2, codes.Unavailable), attempts: 3},
		{name: "not retried by another code", policy: xdsresource.RetryPolicy{Codes: onUnavailable, PerTryTimeout: second}, handle: hanging(2),
			want: codes.DeadlineExceeded, message: "attempt 1 of the RPC was not answered for 1s, the per_try_timeout", attempts: 1, after: second},
		{name: "the last attempt is bounded", policy: xdsresource.RetryPolicy{Codes: onDeadline, PerTryTimeout: second}, handle: hanging(9),
			want: codes.DeadlineExceeded, message: "attempt 3 of the RPC was not answered for 1s, the per_try_timeout", attempts: 3, after: 3 * second},
		{name: "without retries", policy: xdsresource.RetryPolicy{MaxAttempts: 1, PerTryTimeout: second}, handle: hanging(9),
			want: codes.DeadlineExceeded, message: "per_try_timeout", attempts: 1, after: second},
		{name: "the deadline of the RPC is over all attempts", policy: xdsresource.RetryPolicy{Codes: onDeadline, PerTryTimeout: second}, handle: hanging(9),
			timeout: 1500 * time.Millisecond, want: codes.DeadlineExceeded, attempts: 2, after: 1500 * time.Millisecond},
		{name: "not if the application disabled retries", policy: xdsresource.RetryPolicy{Codes: onDeadline, PerTryTimeout: second}, handle: hanging(9),
			timeout: 5 * second, dial: []grpc.DialOption{grpc.WithDisableRetry()}, want: codes.DeadlineExceeded, attempts: 1, after: 5 * second},
		{name: "per_try_idle_timeout is a bound too", policy: xdsresource.RetryPolicy{Codes: onDeadline, PerTryIdleTimeout: second}, handle: hanging(9),
			want: codes.DeadlineExceeded, message: "attempt 3 of the RPC received nothing for 1s, the per_try_idle_timeout", attempts: 3, after: 3 * second},
	} {
		xdstest.Parallel(t, test.name, func(t *testing.T) {
			eachKindInABubble(t, func(t *testing.T, k kind) {
				w := newWorld(t, worldConfig{routes: []*xdsresource.Route{retried(test.policy)}, handle: test.handle, dial: test.dial})
				var before []context.Context
				w.pick = func(ctx context.Context) error {
					for i, attempt := range before {
						if attempt.Err() == nil && test.dial == nil {
							t.Errorf("attempt %d has ended, its context has not", i+1)
						}
					}
					before = append(before, ctx)
					return nil
				}
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				if test.timeout > 0 {
					ctx, cancel = context.WithTimeout(ctx, test.timeout)
				}
				defer cancel()
				begin := time.Now()
				r := w.makeRPC(ctx, k, "/s/m", []string{"one"})
				if status.Code(r.err) != test.want || r.err != nil && !strings.Contains(r.err.Error(), test.message) {
					t.Errorf("%v, want %v: %s", r.err, test.want, test.message)
				}
				if r.err == nil && r.replies[0] != "one" {
					t.Errorf("replies %q", r.replies)
				}
				xdstest.Equal(t, "attempts", test.attempts, len(w.seen()))
				if took := time.Since(begin); took < test.after || took > test.after+time.Second/10 {
					t.Errorf("ended after %v, want %v", took, test.after)
				}
				// The deadline of the RPC is the server's too, and either may end it first.
				if len(r.finished) != 1 || status.Code(r.finished[0]) != status.Code(r.err) ||
					test.timeout == 0 && fmt.Sprint(r.finished[0]) != fmt.Sprint(r.err) {
					t.Errorf("OnFinish got %v, want once %v", r.finished, r.err)
				}
			})
		})
	}
}

// TestPerTryTimeoutEndsWithTheResponseHeaders: Envoy: "This timeout only applies before any part of
// the response is sent to the downstream".
func TestPerTryTimeoutEndsWithTheResponseHeaders(t *testing.T) {
	t.Parallel()
	for _, k := range kinds[1:] {
		xdstest.Parallel(t, k.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, worldConfig{
					routes: []*xdsresource.Route{retried(xdsresource.RetryPolicy{PerTryTimeout: time.Second})},
					handle: func(n int, s grpc.ServerStream) error {
						if err := s.SendHeader(metadata.Pairs("early", "yes")); err != nil {
							return err
						}
						time.Sleep(time.Minute)
						return echo(s)
					},
				})
				if r := w.makeRPC(t.Context(), k, "/s/m", []string{"one"}); r.err != nil || r.replies[0] != "one" {
					t.Errorf("replies %q, %v", r.replies, r.err)
				}
			})
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
