package e2e_test

import (
	"context"
	"testing"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/orca"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/meshtest"
	"github.com/dynxds/dynxds/testutils"
)

// serveReporting configures the service with a reporting cluster that has endpoints in these localities.
func (m *loadMesh) serveReporting(c *clusterpb.Cluster, localities ...xdsmsg.Locality) {
	m.t.Helper()
	m.set(chain(service, toCluster(c.GetName())), c, xdsmsg.Endpoints(c.GetName()+"-eds", localities...))
}

// loadMesh is a mesh whose control plane collects load reports.
type loadMesh struct {
	*mesh
	loads *controlplane.LoadReports
}

// newLoadMesh asks for reports as often as clients send them, every second.
func newLoadMesh(t *testing.T) *loadMesh {
	t.Helper()
	directly(t, "the reports are those of the client itself")
	loads := controlplane.NewLoadReports(controlplane.LoadOptions{Interval: time.Second})
	m := overServer(t, meshtest.StartServer(t, meshtest.CollectLoads(loads)))
	t.Cleanup(loads.Close)
	return &loadMesh{m, loads}
}

// reporting is a cluster whose load is reported, with those metrics of its backends.
func reporting(name string, metrics ...string) *clusterpb.Cluster {
	c := with(xdsmsg.EDSCluster(name, name+"-eds"), `lrs_server { self {} }`)
	c.LrsReportEndpointMetrics = metrics
	return c
}

// loadOf is the load of a reporting cluster.
func loadOf(name string, localities ...controlplane.LocalityLoad) controlplane.ClusterLoad {
	return controlplane.ClusterLoad{Cluster: name, Service: name + "-eds", Localities: localities}
}

// expect waits until the reports add up to want.
func (m *loadMesh) expect(when string, want ...controlplane.ClusterLoad) {
	m.t.Helper()
	diff := ""
	if _, err := m.loads.Await(testutils.Context(m.t), func(got []controlplane.ClusterLoad) bool {
		diff = cmp.Diff(want, got, cmpopts.EquateEmpty())
		return diff == ""
	}); err != nil {
		m.t.Fatalf("%s: %v (-want +got):\n%s", when, err, diff)
	}
}

// awaitNoStream waits until no LRS stream is open.
func (m *loadMesh) awaitNoStream() {
	m.t.Helper()
	open := -1
	if _, err := m.loads.Await(testutils.Context(m.t), func([]controlplane.ClusterLoad) bool { open, _ = m.loads.Streams(); return open == 0 }); err != nil {
		m.t.Errorf("%d LRS streams are still open: %v", open, err)
	}
}

// rpcs makes n RPCs of each of the kinds, by default of all, and returns how many failed.
func rpcs(t *testing.T, cc *grpc.ClientConn, n int, of ...kind) (failed uint64) {
	t.Helper()
	if len(of) == 0 {
		of = kinds
	}
	for range n {
		for _, k := range of {
			if _, err := call(testutils.Context(t), cc, k, grpc.WaitForReady(true)); err != nil {
				failed++
			}
		}
	}
	return failed
}

// hold opens n streams, each with an answer, that stay until end is called.
func hold(t *testing.T, cc *grpc.ClientConn, n int) (end func()) {
	t.Helper()
	streams := openStreams(testutils.Context(t), t, cc, n)
	for _, s := range streams {
		_, err := s.Header()
		xdstest.NoError(t, err)
	}
	return func() {
		for _, s := range streams {
			s.CloseSend()
			if _, err := finish(s, 0); err != nil {
				t.Error(err)
			}
		}
	}
}

// gRFC A27 and load_report.proto: exactly what there was, by locality, of all kinds
// of RPC, those on their way included.
func TestLoadReportsCountByLocality(t *testing.T) {
	everyWay(t)
	t.Parallel()
	m := newLoadMesh(t)
	near, far := testutils.StartBackend(t, "near"), testutils.StartBackend(t, "far")
	far.Fail(status.Error(codes.NotFound, "not here"))
	west := xdsmsg.In("west", far.Addr())
	west.Region, west.SubZone = "eu", "rack"
	east := xdsmsg.In("east", near.Addr())
	east.Weight = 3
	m.serveReporting(reporting("blue"), east, west)
	cc := m.dial("xds:///" + service)
	// Both localities are connected from here on.
	ok, notFound := reachBoth(t, cc)
	// No streams: when the server ends one with an error before it has read what the
	// client sends, gRPC-Go 1.85 may tell the balancer that it has succeeded
	// (clientStream.retryLocked finishes the attempt with the io.EOF of SendMsg).
	failed := rpcs(t, cc, 40, unary)
	ok, notFound = ok+40-failed, notFound+failed
	far.Fail(nil)
	unaryFar := far.Count()
	end := hold(t, cc, 8)
	distant := uint64(far.Count() - unaryFar)
	want := func(ended bool) controlplane.ClusterLoad {
		east := controlplane.LocalityLoad{Zone: "east", Issued: ok + 8 - distant, Succeeded: ok, InProgress: 8 - distant}
		west := controlplane.LocalityLoad{
			Region: "eu", Zone: "west", SubZone: "rack",
			Issued: notFound + distant, Failed: notFound, InProgress: distant,
		}
		if ended {
			east.Succeeded, east.InProgress = east.Issued, 0
			west.Succeeded, west.InProgress = distant, 0
		}
		return loadOf("blue", east, west)
	}
	m.expect("with 8 streams on their way", want(false))
	end()
	m.expect("when they have ended", want(true))
	if open, opened := m.loads.Streams(); open != 1 || opened != 1 {
		t.Errorf("%d LRS streams of %d, want one", open, opened)
	}
}

// reachBoth makes RPCs until one has succeeded and one has failed with NOT_FOUND, and
// returns how many did.
func reachBoth(t *testing.T, cc *grpc.ClientConn) (ok, notFound uint64) {
	t.Helper()
	for ok == 0 || notFound == 0 {
		_, err := call(testutils.Context(t), cc, unary, grpc.WaitForReady(true))
		switch status.Code(err) {
		case codes.OK:
			ok++
		case codes.NotFound:
			notFound++
		default:
			t.Fatal(err)
		}
	}
	return ok, notFound
}

// orcaBackend reports metrics at the end of each unary RPC.
func orcaBackend(t *testing.T, id string, report func(orca.CallMetricsRecorder)) *testutils.Backend {
	return testutils.StartBackend(t, id, orca.CallMetricsServerOption(nil), grpc.ChainUnaryInterceptor(
		func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			report(orca.CallMetricsRecorderFromContext(ctx))
			return handler(ctx, req)
		}))
}

// gRFC A51, A64, A85: the metrics that backends send at the end of RPCs, as far as the Cluster asks for them.
func TestLoadReportsCarryBackendMetrics(t *testing.T) {
	t.Parallel()
	b := func(t *testing.T) *testutils.Backend {
		return orcaBackend(t, "b", func(r orca.CallMetricsRecorder) {
			r.SetCPUUtilization(0.5)
			r.SetMemoryUtilization(0.25)
			r.SetApplicationUtilization(2)
			r.SetNamedMetric("queue", 3)
			r.SetNamedMetric("cache", 1)
			r.SetRequestCost("db", 100)
		})
	}
	const n = 4
	all := map[string]controlplane.MetricLoad{
		"cpu_utilization": {RPCs: n, Sum: 0.5 * n}, "mem_utilization": {RPCs: n, Sum: 0.25 * n},
		"application_utilization": {RPCs: n, Sum: 2 * n}, "named_metrics.queue": {RPCs: n, Sum: 3 * n}, "named_metrics.cache": {RPCs: n, Sum: n},
	}
	for _, tc := range []struct {
		name    string
		metrics []string
		want    []string
	}{
		{"none are asked for", nil, nil},
		{"one named metric", []string{"named_metrics.queue", "named_metrics.other", "request_cost.db"}, []string{"named_metrics.queue"}},
		{"everything", []string{"cpu_utilization", "mem_utilization", "application_utilization", "named_metrics.*"},
			[]string{"cpu_utilization", "mem_utilization", "application_utilization", "named_metrics.queue", "named_metrics.cache"}},
	} {
		xdstest.Parallel(t, tc.name, func(t *testing.T) {
			m := newLoadMesh(t)
			m.serveReporting(reporting("blue", tc.metrics...), xdsmsg.In("z", b(t).Addr()))
			cc := m.dial("xds:///" + service)
			if failed := rpcs(t, cc, n, unary); failed > 0 {
				t.Fatalf("%d RPCs failed", failed)
			}
			want := controlplane.LocalityLoad{Zone: "z", Issued: n, Succeeded: n, Metrics: map[string]controlplane.MetricLoad{}}
			for _, name := range tc.want {
				want.Metrics[name] = all[name]
			}
			m.expect("after the RPCs", loadOf("blue", want))
		})
	}
}

// Two channels are one client with one stream; their load is one. When both are
// closed the last numbers are reported and the stream ends.
func TestLoadReportsOfTwoChannels(t *testing.T) {
	t.Parallel()
	m, b := newLoadMesh(t), testutils.StartBackend(t, "b")
	m.serveReporting(reporting("blue"), xdsmsg.In("z", b.Addr()))
	one, two := m.dial("xds:///"+service), m.dial("xds:///"+service)
	failed := rpcs(t, one, 3) + rpcs(t, two, 2)
	m.expect("of both", loadOf("blue", controlplane.LocalityLoad{Zone: "z", Issued: 20, Succeeded: 20}))
	one.Close()
	failed += rpcs(t, two, 1)
	two.Close()
	m.expect("after the last has closed", loadOf("blue", controlplane.LocalityLoad{Zone: "z", Issued: 24, Succeeded: 24}))
	if failed > 0 {
		t.Errorf("%d RPCs failed", failed)
	}
	m.awaitNoStream()
	if _, opened := m.loads.Streams(); opened != 1 {
		t.Errorf("%d LRS streams were opened, want 1", opened)
	}
}

// After a restart the control plane gets what was counted while it was stopped.
func TestLoadReportsOverARestart(t *testing.T) {
	everyWay(t)
	t.Parallel()
	m, b := newLoadMesh(t), testutils.StartBackend(t, "b")
	m.serveReporting(reporting("blue"), xdsmsg.In("z", b.Addr()))
	cc := m.dial("xds:///" + service)
	failed := rpcs(t, cc, 1)
	m.expect("before", loadOf("blue", controlplane.LocalityLoad{Zone: "z", Issued: 4, Succeeded: 4}))
	m.Stop()
	failed += rpcs(t, cc, 5)
	m.restart()
	failed += rpcs(t, cc, 1)
	m.expect("afterwards", loadOf("blue", controlplane.LocalityLoad{Zone: "z", Issued: 28, Succeeded: 28}))
	if failed > 0 {
		t.Errorf("%d RPCs failed", failed)
	}
}

// The load of a removed cluster is reported until its last RPC ends; turning reports off
// affects no RPC.
func TestLoadReportsOfRemovedClusters(t *testing.T) {
	everyWay(t)
	t.Parallel()
	m, b := newLoadMesh(t), testutils.StartBackend(t, "b")
	in := xdsmsg.In("z", b.Addr())
	m.serveReporting(reporting("blue"), in)
	cc := m.dialServing(reporting("green"), xdsmsg.Endpoints("green-eds", in))
	end := hold(t, cc, 1)
	if failed := rpcs(t, cc, 1); failed > 0 {
		t.Fatalf("%d RPCs failed", failed)
	}
	m.set(xdsmsg.RouteConfig(service, service, toCluster("green")))
	m.Delete(t, xdsmsg.ClusterType, "blue")
	for trafficTo("green").Picked == 0 { // until an RPC was sent there
		backendFor(testutils.Context(t), t, cc, unary)
	}
	blue := func(loads []controlplane.ClusterLoad) controlplane.LocalityLoad {
		if len(loads) < 2 || len(loads[0].Localities) != 1 {
			return controlplane.LocalityLoad{}
		}
		return loads[0].Localities[0]
	}
	await := func(when string, f func(controlplane.LocalityLoad) bool) {
		t.Helper()
		if loads, err := m.loads.Await(testutils.Context(t), func(l []controlplane.ClusterLoad) bool { return f(blue(l)) }); err != nil {
			t.Fatalf("%s: %v: %+v", when, err, loads)
		}
	}
	await("with a stream of the removed cluster", func(l controlplane.LocalityLoad) bool {
		return l.InProgress == 1 && l.Issued == l.Succeeded+1
	})
	end()
	await("when it has ended", func(l controlplane.LocalityLoad) bool { return l.InProgress == 0 && l.Issued == l.Succeeded })

	// Without lrs_server the stream ends, and RPCs go on.
	quiet := reporting("green")
	quiet.LrsServer = nil
	m.set(quiet)
	m.awaitNoStream()
	mustReach(t, cc, unary, b)
}
