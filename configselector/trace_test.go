package configselector_test

import (
	"fmt"
	"strings"

	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/rpctrace"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
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

var traceHost = xdsresource.VirtualHost{Name: "host"}
