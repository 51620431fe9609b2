package e2e_test

import (
	"context"
	"testing"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/orca"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/controlplane"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// loadMesh is a mesh whose control plane collects load reports.
type loadMesh struct {
	*mesh
	loads *controlplane.LoadReports
}

// newLoadMesh asks for reports as often as clients give them, every second.
func newLoadMesh(t *testing.T) *loadMesh {
	t.Helper()
	directly(t, "the reports are those that the client itself gives the control plane")
	loads := controlplane.NewLoadReports(controlplane.LoadOptions{Interval: time.Second})
	m := &mesh{Server: xdstest.StartServer(t, testutils.CollectLoads(loads)), t: t}
	if protocol != "" {
		m.features = append(m.features, protocol)
	}
	t.Cleanup(loads.Close)
	return &loadMesh{m, loads}
}

// reporting is a cluster whose load is reported, with those metrics of its backends.
func reporting(name string, metrics ...string) *clusterpb.Cluster {
	c := xdsmsg.EDSCluster(name, name+"-eds")
	c.LrsServer = &corepb.ConfigSource{ConfigSourceSpecifier: &corepb.ConfigSource_Self{Self: &corepb.SelfConfigSource{}}}
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

// rpcs makes n RPCs of each of the kinds, by default of all, and returns how many
// failed.
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
	var streams []duplex
	for range n {
		s, err := testgrpc.NewTestServiceClient(cc).FullDuplexCall(testutils.Context(t), grpc.WaitForReady(true))
		xdstest.NoError(t, err)
		if _, err := s.Header(); err != nil {
			t.Fatal(err)
		}
		streams = append(streams, s)
	}
	return func() {
		for _, s := range streams {
			s.CloseSend()
			if _, err := finish(s, 0, func() error { _, err := s.Recv(); return err }); err != nil {
				t.Error(err)
			}
		}
	}
}

// gRFC A27 and load_report.proto: exactly what there was, by locality, of all kinds
// of RPC, those on their way included.
func TestLoadReportsCountByLocality(t *testing.T) {
	t.Parallel()
	m := newLoadMesh(t)
	near, far := testutils.StartBackend(t, "near"), testutils.StartBackend(t, "far")
	far.Fail(status.Error(codes.NotFound, "not here"))
	west := xdsmsg.In("west", far.Addr())
	west.Region, west.SubZone = "eu", "rack"
	east := xdsmsg.In("east", near.Addr())
	east.Weight = 3
	m.set(append(chain(service, xdsmsg.PrefixRoute("", "blue")), reporting("blue"), xdsmsg.Endpoints("blue-eds", east, west))...)
	cc := m.dial("xds:///" + service)
	// The shares are exact only when both localities are connected.
	ok, notFound := reachBoth(t, cc)
	// No streams: when the server ends one with an error before it has read what the
	// client sends, gRPC-Go 1.85 may tell the balancer that it has succeeded
	// (clientStream.retryLocked finishes the attempt with the io.EOF of SendMsg).
	if failed := rpcs(t, cc, 40, unary); failed != 10 {
		t.Fatalf("%d of 40 RPCs failed, want a quarter", failed)
	}
	far.Fail(nil)
	end := hold(t, cc, 8)
	want := func(inProgress, succeeded uint64) controlplane.ClusterLoad {
		return loadOf("blue",
			controlplane.LocalityLoad{Zone: "east", Issued: ok + 36, Succeeded: ok + 30 + 3*succeeded, InProgress: 3 * inProgress},
			controlplane.LocalityLoad{
				Region: "eu", Zone: "west", SubZone: "rack",
				Issued: notFound + 12, Failed: notFound + 10, Succeeded: succeeded, InProgress: inProgress,
			})
	}
	m.expect("with 8 streams on their way", want(2, 0))
	end()
	m.expect("when they have ended", want(0, 2))
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

// load_report.proto, ClusterStats: drops by category; those of circuit breaking in
// the total only.
func TestLoadReportsCountDrops(t *testing.T) {
	t.Parallel()
	m, b := newLoadMesh(t), testutils.StartBackend(t, "b")
	c := reporting("dropping")
	c.CircuitBreakers = &clusterpb.CircuitBreakers{Thresholds: []*clusterpb.CircuitBreakers_Thresholds{{MaxRequests: wrapperspb.UInt32(2)}}}
	endpoints := xdsmsg.Endpoints("dropping-eds", xdsmsg.In("z", b.Addr()))
	m.set(append(chain(service, xdsmsg.PrefixRoute("", "dropping")), c, endpoints)...)
	cc := m.dial("xds:///" + service)
	end := hold(t, cc, 2)
	if failed := rpcs(t, cc, 1); failed != 4 {
		t.Fatalf("%d of 4 RPCs over the limit failed", failed)
	}
	end()
	want := loadOf("dropping", controlplane.LocalityLoad{Zone: "z", Issued: 2, Succeeded: 2})
	want.TotalDropped = 4
	m.expect("circuit breaking", want)

	endpoints.Policy = &endpointpb.ClusterLoadAssignment_Policy{DropOverloads: []*endpointpb.ClusterLoadAssignment_Policy_DropOverload{
		{Category: "spare", DropPercentage: &typepb.FractionalPercent{Numerator: 100}},
	}}
	m.set(endpoints)
	for { // until the drops apply
		_, err := call(testutils.Context(t), cc, unary)
		if err != nil {
			break
		}
		want.Localities[0].Issued++
		want.Localities[0].Succeeded++
	}
	if failed := rpcs(t, cc, 3); failed != 12 {
		t.Fatalf("%d of 12 RPCs were dropped", failed)
	}
	want.TotalDropped += 13
	want.Dropped = map[string]uint64{"spare": 13}
	m.expect("drop_overloads", want)
}

// orcaBackend reports metrics at the end of each unary RPC.
func orcaBackend(t *testing.T, id string, report func(orca.CallMetricsRecorder)) *testutils.Backend {
	return testutils.StartBackend(t, id, orca.CallMetricsServerOption(nil), grpc.ChainUnaryInterceptor(
		func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			report(orca.CallMetricsRecorderFromContext(ctx))
			return handler(ctx, req)
		}))
}

// gRFC A51, A64, A85: what real backends say at the end of RPCs, as far as the
// Cluster asks for it.
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
			m.set(append(chain(service, xdsmsg.PrefixRoute("", "blue")), reporting("blue", tc.metrics...), xdsmsg.Endpoints("blue-eds", xdsmsg.In("z", b(t).Addr())))...)
			cc := m.dial("xds:///" + service)
			for range n {
				if _, err := call(testutils.Context(t), cc, unary); err != nil {
					t.Fatal(err)
				}
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
	m.set(append(chain(service, xdsmsg.PrefixRoute("", "blue")), reporting("blue"), xdsmsg.Endpoints("blue-eds", xdsmsg.In("z", b.Addr())))...)
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
	open := -1
	if _, err := m.loads.Await(testutils.Context(t), func([]controlplane.ClusterLoad) bool { open, _ = m.loads.Streams(); return open == 0 }); err != nil {
		t.Errorf("%d LRS streams are still open: %v", open, err)
	}
	if _, opened := m.loads.Streams(); opened != 1 {
		t.Errorf("%d LRS streams were opened, want 1", opened)
	}
}

// A control plane that restarts gets what was counted while it was away.
func TestLoadReportsOverARestart(t *testing.T) {
	t.Parallel()
	m, b := newLoadMesh(t), testutils.StartBackend(t, "b")
	m.set(append(chain(service, xdsmsg.PrefixRoute("", "blue")), reporting("blue"), xdsmsg.Endpoints("blue-eds", xdsmsg.In("z", b.Addr())))...)
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
	t.Parallel()
	m, b := newLoadMesh(t), testutils.StartBackend(t, "b")
	in := xdsmsg.In("z", b.Addr())
	m.set(append(chain(service, xdsmsg.PrefixRoute("", "blue")),
		reporting("blue"), xdsmsg.Endpoints("blue-eds", in), reporting("green"), xdsmsg.Endpoints("green-eds", in))...)
	cc := m.dial("xds:///" + service)
	end := hold(t, cc, 1)
	if failed := rpcs(t, cc, 1); failed > 0 {
		t.Fatalf("%d RPCs failed", failed)
	}
	m.set(xdsmsg.RouteConfig(service, service, xdsmsg.PrefixRoute("", "green")))
	m.Delete(t, xdsmsg.ClusterType, "blue")
	for trafficTo("green").Cluster == "" { // until an RPC has gone there
		if _, err := call(testutils.Context(t), cc, unary); err != nil {
			t.Fatal(err)
		}
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
	await("with a stream of the cluster that is gone", func(l controlplane.LocalityLoad) bool {
		return l.InProgress == 1 && l.Issued == l.Succeeded+1
	})
	end()
	await("when it has ended", func(l controlplane.LocalityLoad) bool { return l.InProgress == 0 && l.Issued == l.Succeeded })

	// Without lrs_server the stream ends, and RPCs go on.
	quiet := reporting("green")
	quiet.LrsServer = nil
	m.set(quiet)
	open := -1
	if _, err := m.loads.Await(testutils.Context(t), func([]controlplane.ClusterLoad) bool { open, _ = m.loads.Streams(); return open == 0 }); err != nil {
		t.Fatalf("%d LRS streams are still open: %v", open, err)
	}
	mustReach(t, cc, unary, b)
}
