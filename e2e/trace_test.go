package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	headerpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// rpcLog records the events of a trace as lines.
type rpcLog struct {
	xdstest.State
	lines []string
}

func (l *rpcLog) add(format string, args ...any) {
	l.Change(func() { l.lines = append(l.lines, fmt.Sprintf(format, args...)) })
}

func (l *rpcLog) trace() *dynxds.Trace {
	return &dynxds.Trace{
		WaitedForConfig: func(w dynxds.TraceConfigWait) { l.add("waited for %s: %v", w.Target, w.Err) },
		Routed: func(r dynxds.TraceRoute) {
			l.add("%s/%s/%s to %q: %v", r.RouteConfig, r.VirtualHost, r.Name, r.Cluster, status.Code(r.Err))
		},
		FilterStarted: func(f dynxds.TraceFilter) { l.add("%s started", f.Name) },
		FilterEnded:   func(f dynxds.TraceFilter) { l.add("%s ended: %v, %v", f.Name, f.PassedOn, status.Code(f.Err)) },
		Picked: func(p dynxds.TracePick) {
			if p.Err != nil {
				l.add("no endpoint of %s", p.Cluster)
				return
			}
			l.add("picked %s, %s/%s/%s, priority %d, %s", p.Cluster, p.Region, p.Zone, p.SubZone, p.Priority, p.Endpoint)
		},
		AttemptEnded: func(a dynxds.TraceAttempt) { l.add("attempt %d to %s: %v", a.Number, a.Cluster, status.Code(a.Err)) },
		Retried:      func(r dynxds.TraceRetry) { l.add("retry %d after %v", r.Attempt, status.Code(r.Err)) },
		Mirrored:     func(m dynxds.TraceMirror) { l.add("mirror to %s, dropped %v", m.Cluster, m.Dropped) },
	}
}

// expect waits for as many events as wanted, and checks them.
func (l *rpcLog) expect(t *testing.T, want ...string) {
	t.Helper()
	l.Await(t, fmt.Sprintf("%d events, the last one %q", len(want), want[len(want)-1]), func() bool { return len(l.lines) >= len(want) })
	l.Change(func() {
		if !slices.Equal(l.lines, want) {
			t.Errorf("the trace has\n%s\nwant\n%s", strings.Join(l.lines, "\n"), strings.Join(want, "\n"))
		}
	})
}

// One RPC of each kind with every event that a trace has: the first configuration, a filter, a mirror, a retry,
// and picks.
func TestTraceEndToEnd(t *testing.T) {
	everyWay(t)
	t.Parallel()
	for _, k := range kinds {
		xdstest.Parallel(t, string(k), func(t *testing.T) {
			m := newMesh(t)
			backend, shadow := testutils.StartBackend(t, "main"), testutils.StartBackend(t, "shadow")
			route := with(toCluster("main"), `name: "everything" route {
				retry_policy { retry_on: "unavailable" num_retries { value: 1 } } request_mirror_policies { cluster: "shadow" } }`)
			other := xdsmsg.PathRoute("/other", "shadow") // so that the virtual host has the mirror's cluster
			place := xdsmsg.In("zone", backend.Addr())
			place.Region, place.SubZone = "region", "sub"
			edit := with(new(headerpb.HeaderMutation), `mutations { request_mutations { append { header { key: "k" value: "v" } } } }`)
			m.set(clusterOf("shadow", shadow),
				xdsmsg.DefaultListener(service, service, xdsmsg.Filter("first", edit), xdsmsg.Filter("second", edit)),
				xdsmsg.RouteConfig(service, service, other, route),
				xdsmsg.EDSCluster("main", ""), xdsmsg.Endpoints("main", place))
			failTimes(backend, 1)
			var log rpcLog
			cc := m.dial("xds:///" + service)
			ctx := dynxds.WithTrace(testutils.Context(t), log.trace())
			_, err := call(ctx, cc, k)
			xdstest.NoError(t, err)
			xdstest.NoError(t, shadow.Wait(ctx, 1)) // The trace has no pick of the mirror.
			picked := fmt.Sprintf("picked main, region/zone/sub, priority 0, %s", backend.Addr())
			want := []string{
				"waited for xds:///" + service + ": <nil>",
				service + "/" + service + `/everything to "main": OK`,
				"first started", "second started",
				"mirror to shadow, dropped false",
				"second ended: true, OK", "first ended: true, OK",
				picked, "attempt 1 to main: Unavailable", "retry 2 after Unavailable", picked, "attempt 2 to main: OK",
			}
			if k != unary { // A stream is opened before the last filter returns.
				want = slices.Insert(slices.Delete(want, 7, 8), 4, picked)
			}
			log.expect(t, want...)
		})
	}
}
