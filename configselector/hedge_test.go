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
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// hedged is a route with hedge_on_per_try_timeout, and next to no wait for retries.
func hedged(max int) *xdsresource.Route {
	return retried(xdsresource.RetryPolicy{MaxAttempts: max, PerTryTimeout: time.Second, Hedges: true})
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
	for name, answers := range map[string][]answer{"not answered": {hangs}, "waiting": {{code: codes.Unavailable, trailer: []string{"grpc-retry-pushback-ms", "100000"}}}} {
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
