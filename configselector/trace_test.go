package configselector_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/rpctrace"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// traceLog records the events of a trace as lines.
type traceLog struct {
	xdstest.State
	lines []string
}

func (l *traceLog) add(format string, args ...any) {
	l.Change(func() { l.lines = append(l.lines, fmt.Sprintf(format, args...)) })
}

func (l *traceLog) trace() *rpctrace.Trace {
	return &rpctrace.Trace{
		Routed: func(r rpctrace.Route) {
			if routed := r.Err == nil; routed != strings.HasSuffix(r.Match, "*") {
				l.add("routed by the match %q: %v", r.Match, r.Err)
			}
			l.add("routed %s %s/%s/%s to %q: %v", r.Method, r.RouteConfig, r.VirtualHost, r.Name, r.Cluster, status.Code(r.Err))
		},
		FilterStarted: func(f rpctrace.Filter) { l.add("%s started", f.Name) },
		FilterEnded: func(f rpctrace.Filter) {
			if f.Duration < 0 {
				l.add("%s took %v", f.Name, f.Duration)
			}
			l.add("%s ended: passed on %v, %v", f.Name, f.PassedOn, status.Code(f.Err))
		},
		AttemptEnded: func(a rpctrace.Attempt) { l.add("attempt %d to %s: %v", a.Number, a.Cluster, status.Code(a.Err)) },
		Retried: func(r rpctrace.Retry) {
			if r.Delay <= 0 {
				l.add("a retry after %v", r.Delay)
			}
			l.add("retry %d after %v", r.Attempt, status.Code(r.Err))
		},
		Mirrored: func(m rpctrace.Mirror) { l.add("mirror to %s, dropped %v", m.Cluster, m.Dropped) },
	}
}

// expect checks the events so far, once there are as many as wanted.
func (l *traceLog) expect(t *testing.T, want ...string) {
	t.Helper()
	l.Await(t, fmt.Sprint(len(want), " events"), func() bool { return len(l.lines) >= len(want) })
	l.Change(func() {
		if !slices.Equal(l.lines, want) {
			t.Errorf("the trace has\n%s\nwant\n%s", strings.Join(l.lines, "\n"), strings.Join(want, "\n"))
		}
	})
}

const routedToC = `routed /s/m routes/host/r to "c": OK`

// named is a route with a name.
func named(r *xdsresource.Route) []*xdsresource.Route {
	r.Name = "r"
	return []*xdsresource.Route{r}
}

var traceHost = xdsresource.VirtualHost{Name: "host"}

// An attempt without a stream has ended, whether or not gRPC saw it.
func TestTraceOfAnAttemptWithoutAStream(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]func(context.Context, []grpc.CallOption) error{
		"gRPC": func(_ context.Context, opts []grpc.CallOption) error {
			grpcbridge.Finish(opts, status.Error(codes.Unavailable, "refused"))
			return status.Error(codes.Unavailable, "refused")
		},
		"interceptor": func(context.Context, []grpc.CallOption) error { return status.Error(codes.Unavailable, "refused") },
	} {
		for _, route := range []*xdsresource.Route{toC(), retried(xdsresource.RetryPolicy{MaxAttempts: 2})} {
			var log traceLog
			w := newWorld(t, worldConfig{routes: named(route), vh: traceHost})
			_, err := w.s.Stream(rpctrace.With(t.Context(), log.trace()), kinds[3].desc, w.cc, "/s/m",
				func(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
					return nil, refuse(ctx, opts)
				}, nil)
			if status.Code(err) != codes.Unavailable {
				t.Errorf("%s: %v", name, err)
			}
			want := []string{routedToC, "attempt 1 to c: Unavailable"}
			if route.Retry != nil {
				want = append(want, "retry 2 after Unavailable", "attempt 2 to c: Unavailable")
			}
			log.expect(t, want...)
		}
	}
}

// A filter that sends the RPC several times at once calls the hooks concurrently.
func TestTraceOfFurtherRPCs(t *testing.T) {
	t.Parallel()
	const further = 10
	hedge := filterOf("hedge", func(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
		if !next.RouteHas("c") {
			t.Error("the filter does not see the route")
		}
		var all sync.WaitGroup
		for range further {
			clone := rpc.Clone()
			all.Go(func() {
				s, err := next.NewStream(ctx, clone)
				if err == nil {
					err = httpfilter.Exchange(s, bytesOf("x"), bytesOf(""))
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		return next.NewStream(ctx, rpc)
	})
	w := newWorld(t, worldConfig{routes: named(toC()), vh: traceHost, listener: chainOf(hedge)})
	var log traceLog
	xdstest.NoError(t,
		(w.makeRPC(rpctrace.With(testutils.Context(t), log.trace()), kinds[0], "/s/m", []string{"x"})).err)
	want := []string{routedToC, "hedge started"}
	for range further {
		want = append(want, "attempt 1 to c: OK")
	}
	log.expect(t, append(want, "hedge ended: passed on true, OK", "attempt 1 to c: OK")...)
}
