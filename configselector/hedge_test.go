package configselector_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/rpctrace"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

const ms = time.Millisecond

// answer is how a server answers an attempt.
type answer struct {
	after    time.Duration
	code     codes.Code
	pushback string // grpc-retry-pushback-ms; "": none
	header   bool   // response headers are sent at once
}

var hangs = answer{after: time.Hour}

// attempts is what a server sees of the attempts of an RPC, in a bubble.
type attempts struct {
	mu     sync.Mutex
	start  time.Time
	begins []string // after which time, and with which grpc-previous-rpc-attempts
	ends   []string // how: "answered" or "canceled"
}

func (a *attempts) handle(answers []answer) func(int, grpc.ServerStream) error {
	a.start = time.Now()
	return func(n int, s grpc.ServerStream) error {
		md, _ := metadata.FromIncomingContext(s.Context())
		a.mu.Lock()
		a.begins = append(a.begins, fmt.Sprintf("%v %s", time.Since(a.start).Round(10*ms), strings.Join(md["grpc-previous-rpc-attempts"], ",")))
		a.ends = append(a.ends, "")
		a.mu.Unlock()
		how := answers[min(n, len(answers)-1)]
		if how.header {
			_ = s.SendHeader(metadata.Pairs("attempt", fmt.Sprint(n)))
		}
		end := "answered"
		select {
		case <-time.After(how.after):
		case <-s.Context().Done():
			end = "canceled"
		}
		a.mu.Lock()
		a.ends[n] = end
		a.mu.Unlock()
		if end == "canceled" {
			return s.Context().Err()
		}
		if how.pushback != "" {
			s.SetTrailer(metadata.Pairs("grpc-retry-pushback-ms", how.pushback))
		}
		if how.code != codes.OK {
			return status.Error(how.code, fmt.Sprint("attempt ", n))
		}
		all, err := receiveAll(s)
		if err != nil {
			return err
		}
		return s.SendMsg(bytesOf(fmt.Sprint(all, " by ", n)))
	}
}

// hedged is a route with hedge_on_per_try_timeout, and next to no wait for retries.
func hedged(max int) *xdsresource.Route {
	return retried(xdsresource.RetryPolicy{MaxAttempts: max, PerTryTimeout: time.Second, Hedges: true})
}

// TestHedging has the rules for hedging, each with its source.
func TestHedging(t *testing.T) {
	t.Parallel()
	ok, fails, fatal := answer{}, answer{code: codes.Unavailable}, answer{code: codes.NotFound}
	after := func(d time.Duration, a answer) answer { a.after = d; return a }
	pushback := func(s string) answer { return answer{code: codes.Unavailable, pushback: s} }
	for _, test := range []struct {
		name    string
		route   *xdsresource.Route
		answers []answer
		timeout time.Duration // of the RPC; 0: none
		dial    []grpc.DialOption
		opts    []grpc.CallOption
		want    codes.Code
		by      string   // the attempt that the RPC ends with; "": none
		begins  []string // attempts
		at      time.Duration
		streams bool // streaming RPCs only
	}{
		{name: "the first attempt is answered in time", route: hedged(4),
			answers: []answer{after(900*ms, ok)}, by: "0", begins: []string{"0s "}, at: 900 * ms},
		{name: `Envoy: "a hedged request should be sent when the per-try timeout is hit", once for each attempt`, route: hedged(3),
			answers: []answer{after(9*time.Second, ok), hangs}, by: "0", begins: []string{"0s ", "1s 1", "2s 2"}, at: 9 * time.Second},
		{name: `Envoy: per_try_idle_timeout does not end an attempt either`, route: retried(xdsresource.RetryPolicy{PerTryIdleTimeout: time.Second, Hedges: true}),
			answers: []answer{after(9*time.Second, ok), hangs}, by: "0", begins: []string{"0s ", "1s 1", "2s 2"}, at: 9 * time.Second},
		{name: "a timeout of an earlier attempt is not one of the latest", route: retried(xdsresource.RetryPolicy{
			MaxAttempts: 5, PerTryTimeout: time.Second, PerTryIdleTimeout: 1500 * ms, Hedges: true,
		}), answers: []answer{after(2200*ms, ok), hangs}, by: "0", begins: []string{"0s ", "1s 1", "2s 2"}, at: 2200 * ms},
		{name: `Envoy: "The first request to complete successfully will be the one returned", and the others are cancelled`, route: hedged(4),
			answers: []answer{hangs, hangs, after(500*ms, ok)}, by: "2", begins: []string{"0s ", "1s 1", "2s 2"}, at: 2500 * ms},
		{name: `Envoy: "Before per-try timeout, an error response would be retried"`, route: hedged(4),
			answers: []answer{after(200*ms, fails), hangs, after(100*ms, ok)}, by: "2", begins: []string{"0s ", "200ms 1", "1.2s 2"}, at: 1300 * ms},
		{name: `Envoy: "or returned to the client if there are no more retries left"`, route: hedged(2),
			answers: []answer{fails}, want: codes.Unavailable, by: "1", begins: []string{"0s ", "0s 1"}},
		{name: `Envoy: "After per-try timeout, an error response would be discarded"`, route: hedged(4),
			answers: []answer{after(1500*ms, fails), after(1800*ms, ok)}, by: "1", begins: []string{"0s ", "1s 1", "2s 2"}, at: 2800 * ms},
		{name: "a late failure of an early attempt is returned if it is the last", route: hedged(2),
			answers: []answer{after(5*time.Second, fails), fails}, want: codes.Unavailable, by: "0", begins: []string{"0s ", "1s 1"}, at: 5 * time.Second},
		{name: "a late failure of the latest attempt is returned if it is the last", route: hedged(2),
			answers: []answer{after(1500*ms, fails), after(5*time.Second, fails)}, want: codes.Unavailable, by: "1", begins: []string{"0s ", "1s 1"}, at: 6 * time.Second},
		{name: `Envoy: an error that triggers no retry is returned`, route: hedged(4),
			answers: []answer{hangs, fatal}, want: codes.NotFound, by: "1", begins: []string{"0s ", "1s 1"}, at: time.Second},
		{name: "such an error of the first attempt", route: hedged(4),
			answers: []answer{after(1500*ms, fatal), hangs}, want: codes.NotFound, by: "0", begins: []string{"0s ", "1s 1"}, at: 1500 * ms},
		{name: `A6: "If the pushback says not to retry, no further hedged requests will be sent"`, route: hedged(4),
			answers: []answer{pushback("-1")}, want: codes.Unavailable, by: "0", begins: []string{"0s "}},
		{name: `A6: those that are under way go on after such a pushback`, route: hedged(4),
			answers: []answer{after(3*time.Second, ok), pushback("-1")}, by: "0", begins: []string{"0s ", "1s 1"}, at: 3 * time.Second},
		{name: `A6: no further ones are sent after it either`, route: hedged(4),
			answers: []answer{{after: 1500 * ms, code: codes.Unavailable, pushback: "-1"}, after(4*time.Second, ok)}, by: "1",
			begins: []string{"0s ", "1s 1"}, at: 5 * time.Second},
		{name: `a pushback of an early attempt that permits retries`, route: hedged(4),
			answers: []answer{{after: 1500 * ms, code: codes.Unavailable, pushback: "0"}, hangs, ok}, by: "2",
			begins: []string{"0s ", "1s 1", "2s 2"}, at: 2 * time.Second},
		{name: "an attempt fails in the wait for the hedge beside it", route: hedged(4),
			answers: []answer{after(time.Second+ms/2, fails), after(500*ms, ok)}, by: "1", begins: []string{"0s ", "1s 1"}, at: 1500 * ms},
		{name: "both timeouts of an attempt pass at the same time", route: retried(xdsresource.RetryPolicy{
			MaxAttempts: 4, PerTryTimeout: time.Second, PerTryIdleTimeout: time.Second, Hedges: true,
		}), answers: []answer{after(1500*ms, ok), hangs}, by: "0", begins: []string{"0s ", "1s 1"}, at: 1500 * ms},
		{name: `A6: "Send next hedged request in n ms"`, route: hedged(4),
			answers: []answer{pushback("5000"), hangs, ok}, by: "2", begins: []string{"0s ", "5s 1", "6s 2"}, at: 6 * time.Second},
		{name: "an answer in the wait for the next attempt", route: retried(xdsresource.RetryPolicy{
			BaseBackoff: 10 * time.Second, MaxBackoff: 10 * time.Second, PerTryTimeout: time.Second, Hedges: true,
		}), answers: []answer{after(1500*ms, ok)}, by: "0", begins: []string{"0s "}, at: 1500 * ms},
		{name: `A6: "Once a deadline has passed, the operation fails regardless of in-flight RPCs"`, route: hedged(4),
			answers: []answer{hangs}, timeout: 1500 * ms, want: codes.DeadlineExceeded, begins: []string{"0s ", "1s 1"}, at: 1500 * ms},
		{name: `A6: the deadline holds while nothing is under way`, route: hedged(4),
			answers: []answer{pushback("5000")}, timeout: 1500 * ms, want: codes.DeadlineExceeded, begins: []string{"0s "}, at: 1500 * ms},
		{name: `A6, "Limits on Retries and Hedges": the channel's limit`, route: hedged(4), dial: []grpc.DialOption{grpc.WithMaxCallAttempts(2)},
			answers: []answer{after(4*time.Second, ok), hangs}, by: "0", begins: []string{"0s ", "1s 1"}, at: 4 * time.Second},
		{name: `A6, "Disabling Retries"`, route: hedged(4), dial: []grpc.DialOption{grpc.WithDisableRetry()},
			answers: []answer{after(4*time.Second, ok), hangs}, by: "0", begins: []string{"0s "}, at: 4 * time.Second},
		{name: `A6, "Memory Management": an RPC that does not fit the buffer is sent once`, route: hedged(4), opts: []grpc.CallOption{grpc.MaxRetryRPCBufferSize(4)},
			answers: []answer{after(4*time.Second, ok), hangs}, by: "0", begins: []string{"0s "}, at: 4 * time.Second},
		{name: `A6: "An RPC becomes committed" by response headers`, route: hedged(4), streams: true,
			answers: []answer{hangs, {after: 3 * time.Second, code: codes.Unavailable, header: true}}, want: codes.Unavailable, by: "1",
			begins: []string{"0s ", "1s 1"}, at: 4 * time.Second},
	} {
		xdstest.Parallel(t, test.name, func(t *testing.T) {
			eachKindInABubble(t, func(t *testing.T, k kind) {
				if test.streams && k.desc == nil {
					return // gRPC does not show the response headers of a unary RPC before its end.
				}
				seen := new(attempts)
				w := newWorld(t, worldConfig{routes: []*xdsresource.Route{test.route}, handle: seen.handle(test.answers), dial: test.dial})
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				if test.timeout > 0 {
					ctx, cancel = context.WithTimeout(ctx, test.timeout)
				}
				defer cancel()
				begin := time.Now()
				r := w.makeRPC(ctx, k, "/s/m", []string{"request"}, test.opts...)
				if took := time.Since(begin); took.Round(50*ms) != test.at {
					t.Errorf("ended after %v, want %v", took, test.at)
				}
				if status.Code(r.err) != test.want || test.want != codes.OK && test.by != "" && !strings.Contains(r.err.Error(), "attempt "+test.by) {
					t.Errorf("%v, want %v by %s", r.err, test.want, test.by)
				}
				if test.want == codes.OK && (len(r.replies) != 1 || r.replies[0] != "request by "+test.by) {
					t.Errorf("replies %q, want one by %s", r.replies, test.by)
				}
				if len(r.finished) != 1 || status.Code(r.finished[0]) != test.want {
					t.Errorf("OnFinish got %v, want once %v", r.finished, test.want)
				}
				synctest.Wait()
				seen.mu.Lock()
				defer seen.mu.Unlock()
				// Those that are sent at the same time arrive in any order.
				xdstest.Equal(t, "attempts",
					slices.Sorted(slices.Values(test.begins)), slices.Sorted(slices.Values(seen.begins)))
				for n, end := range seen.ends {
					if fmt.Sprint(n) == test.by && end != "answered" || end == "" {
						t.Errorf("attempt %d is %q", n, end)
					}
				}
			})
		})
	}
}

// TestHedgesOfAStream: the timeouts of an attempt begin with the end of the request; each hedge is sent all of
// it.
func TestHedgesOfAStream(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		last string // message
		want string // attempts that are answered
	}{"the request fits the buffer": {"c", "abcd by 1"}, "it does not": {strings.Repeat("c", 200), "by 0"}} {
		xdstest.Parallel(t, name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, worldConfig{routes: []*xdsresource.Route{hedged(2)}, handle: func(n int, s grpc.ServerStream) error {
					all, err := receiveAll(s)
					if err != nil {
						return err
					}
					if n == 0 {
						select {
						case <-time.After(time.Minute):
						case <-s.Context().Done():
						}
					}
					return s.SendMsg(bytesOf(fmt.Sprint(all, " by ", n)))
				}})
				s, err := w.s.Stream(t.Context(), kinds[3].desc, w.cc, "/s/m", w.streamer, []grpc.CallOption{grpc.MaxRetryRPCBufferSize(100)})
				xdstest.NoError(t, err)
				for _, m := range []string{"a", "b", test.last, "d"} {
					xdstest.NoError(t, s.SendMsg(bytesOf(m)))
					time.Sleep(time.Hour)
				}
				xdstest.NoError(t, s.CloseSend())
				m := bytesOf("")
				if err := s.RecvMsg(m); err != nil || !strings.HasSuffix(string(m.GetValue()), test.want) || s.RecvMsg(bytesOf("")) != io.EOF {
					t.Errorf("%v, answer %q, want %q", err, m.GetValue(), test.want)
				}
			})
		})
	}
}

// TestAReplyInTheWaitForAHedge: an application that reads late gets the reply of the attempt that goes on, without waiting for
// the next one.
func TestAReplyInTheWaitForAHedge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		route := hedged(3)
		route.Retry.BaseBackoff, route.Retry.MaxBackoff = time.Minute, time.Minute
		w := newWorld(t, worldConfig{routes: []*xdsresource.Route{route}, handle: new(attempts).handle([]answer{{after: 3 * time.Second}})})
		begin := time.Now()
		s, err := w.s.Stream(t.Context(), kinds[3].desc, w.cc, "/s/m", w.streamer, nil)
		xdstest.NoError(t, err)
		xdstest.NoError(t, s.SendMsg(bytesOf("x")))
		xdstest.NoError(t, s.CloseSend())
		time.Sleep(2 * time.Second)
		xdstest.NoError(t, s.RecvMsg(bytesOf("")))
		xdstest.Equal(t, "time of the reply", 3*time.Second, time.Since(begin))
		xdstest.Equal(t, "error at the end", io.EOF, s.RecvMsg(bytesOf("")), cmpopts.EquateErrors())
	})
}

// TestAStreamThatIsNotRead: the end of its context ends all attempts of a hedged stream.
func TestAStreamThatIsNotRead(t *testing.T) {
	t.Parallel()
	for name, answers := range map[string][]answer{"not answered": {hangs}, "waiting": {{code: codes.Unavailable, pushback: "100000"}}} {
		xdstest.Parallel(t, name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				seen := new(attempts)
				w := newWorld(t, worldConfig{routes: []*xdsresource.Route{hedged(3)}, handle: seen.handle(answers)})
				ctx, cancel := context.WithCancel(t.Context())
				s, err := w.s.Stream(ctx, kinds[3].desc, w.cc, "/s/m", w.streamer, nil)
				xdstest.NoError(t, err)
				xdstest.NoError(t, s.SendMsg(bytesOf("x")))
				xdstest.NoError(t, s.CloseSend())
				time.Sleep(1500 * ms)
				cancel()
				synctest.Wait()
				if err := s.RecvMsg(bytesOf("")); status.Code(err) != codes.Canceled {
					t.Error(err)
				}
				seen.mu.Lock()
				defer seen.mu.Unlock()
				if slices.Contains(seen.ends, "") {
					t.Errorf("attempts ended %q", seen.ends)
				}
			})
		})
	}
}

// TestAHedgeThatIsRefused: a limit of the cluster ends the hedges, but not the RPC.
func TestAHedgeThatIsRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		why      rpctrace.Reason
		answer   answer
		attempts int
		want     string
	}{
		{"the first attempt goes on", rpctrace.MaxRetries, answer{after: 3 * time.Second}, 1, "request by 0"},
		{"the first attempt goes on beside a hedge that is dropped", rpctrace.Dropped, answer{after: 3 * time.Second}, 1, "request by 0"},
		{"the first attempt fails", rpctrace.MaxRetries, answer{after: 3 * time.Second, code: codes.Unavailable}, 1, "attempt 0"},
		{"no attempt is left", rpctrace.MaxRetries, answer{code: codes.Unavailable}, 1, "attempt 0; not retried: over the limit"},
		{"the first attempt is dropped", rpctrace.Dropped, answer{}, 0, "over the limit"},
	} {
		xdstest.Parallel(t, test.name, func(t *testing.T) {
			eachKindInABubble(t, func(t *testing.T, k kind) {
				seen := new(attempts)
				w := newWorld(t, worldConfig{routes: []*xdsresource.Route{hedged(3)}, handle: seen.handle([]answer{test.answer})})
				w.pick = func(ctx context.Context) error {
					d := decision.FromContext(ctx)
					if test.attempts > 0 && !d.Attempt().Retry {
						return nil
					}
					d.Fail(test.why)
					return status.Error(codes.Unavailable, "over the limit")
				}
				r := w.makeRPC(t.Context(), k, "/s/m", []string{"request"})
				if got := fmt.Sprint(r.replies, r.err); !strings.Contains(got, test.want) {
					t.Errorf("%s, want %s", got, test.want)
				}
				synctest.Wait()
				xdstest.Equal(t, "attempts", test.attempts, len(seen.begins))
			})
		})
	}
}

// TestHedgingUnderLoad: each RPC ends once, with the reply to its own request or an error, while attempts
// fail, hang and are cancelled at the same time.
func TestHedgingUnderLoad(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, k kind) {
		route := hedged(5)
		route.Retry.PerTryTimeout = time.Millisecond
		w := newWorld(t, worldConfig{routes: []*xdsresource.Route{route}, handle: func(n int, s grpc.ServerStream) error {
			md, _ := metadata.FromIncomingContext(s.Context())
			last := slices.Equal(md["grpc-previous-rpc-attempts"], []string{"4"})
			switch {
			case n%5 == 0 && !last:
				return status.Error(codes.Unavailable, "not here")
			case n%5 == 1 && !last:
				<-s.Context().Done()
				return s.Context().Err()
			}
			return echo(s)
		}})
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				request := fmt.Sprint("request ", i, strings.Repeat(" with some text", i))
				if i%7 == 0 || len(request) >= 480 { // The latter may hang: they are sent once.
					time.AfterFunc(time.Duration(i)*time.Millisecond/7, cancel)
				}
				r := w.makeRPC(ctx, k, "/s/m", []string{request}, grpc.MaxRetryRPCBufferSize(500))
				fits := len(request) < 480
				switch code := status.Code(r.err); {
				case code == codes.OK && r.replies[0] != request:
					t.Errorf("RPC %d got %q", i, r.replies)
				case code != codes.OK && i%7 != 0 && fits:
					t.Errorf("RPC %d: %v", i, r.err)
				case len(r.finished) != 1:
					t.Errorf("RPC %d finished %d times", i, len(r.finished))
				}
			})
		}
		all.Wait()
	})
}

// TestTraceOfHedges: an attempt that is given up has ended before the RPC does.
func TestTraceOfHedges(t *testing.T) {
	t.Parallel()
	eachKindInABubble(t, func(t *testing.T, k kind) {
		seen := new(attempts)
		w := newWorld(t, worldConfig{routes: []*xdsresource.Route{hedged(3)}, handle: seen.handle([]answer{hangs, {code: codes.Unavailable}, {}})})
		var mu sync.Mutex
		var log []string
		add := func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			log = append(log, fmt.Sprintf(format, args...))
		}
		ctx := rpctrace.With(t.Context(), &rpctrace.Trace{
			Retried:      func(r rpctrace.Retry) { add("retry %d after %v", r.Attempt, status.Code(r.Err)) },
			AttemptEnded: func(a rpctrace.Attempt) { add("attempt %d: %v", a.Number, status.Code(a.Err)) },
		})
		xdstest.NoError(t, w.makeRPC(ctx, k, "/s/m", []string{"request"}).err)
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(log)
		want := []string{"attempt 1: Canceled", "attempt 2: Unavailable", "attempt 3: OK", "retry 2 after OK", "retry 3 after Unavailable"}
		xdstest.Equal(t, "log", want, log)
	})
}

// A filter that asks for the outcome of what it sends gets that of the attempt which is the RPC. The
// others, some of which end later, do not write to its variables.
func TestHedgingReportsOneOutcomeToFilters(t *testing.T) {
	t.Parallel()
	eachKindInABubble(t, func(t *testing.T, k kind) {
		for _, first := range []answer{{code: codes.Unavailable}, hangs} {
			var header, trailer metadata.MD
			var p peer.Peer
			var finished atomic.Int64
			ask := filterOf("f", func(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
				rpc.AddOptions(grpc.Header(&header), grpc.Trailer(&trailer), grpc.Peer(&p), grpc.OnFinish(func(error) { finished.Add(1) }))
				return next.NewStream(ctx, rpc)
			})
			w := newWorld(t, worldConfig{
				routes:   []*xdsresource.Route{hedged(5)},
				listener: chainOf(ask), handle: new(attempts).handle([]answer{first, {header: true}}),
			})
			r := w.makeRPC(t.Context(), k, "/s/m", []string{"x"})
			synctest.Wait()
			if r.err != nil || p.Addr == nil || finished.Load() == 0 {
				t.Errorf("the RPC ended with %v; the filter sees peer %v, %d calls of OnFinish", r.err, p.Addr, finished.Load())
			}
			if diff := cmp.Diff([]metadata.MD{r.header, r.trailer}, []metadata.MD{header, trailer}); diff != "" {
				t.Errorf("header and trailer (-of the application +of the filter):\n%s", diff)
			}
		}
	})
}
