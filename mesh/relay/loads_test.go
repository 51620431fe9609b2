package relay_test

import (
	"maps"
	"math"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadpb "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/dynxds/dynxds/internal/testca"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/meshtest"
	"github.com/dynxds/dynxds/mesh/relay"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// reportLoads opens a stream of load reports to the relay, and takes the first response.
func (r *rig) reportLoads(id string) loadpb.LoadReportingService_StreamLoadStatsClient {
	r.t.Helper()
	return r.reportLoadsTo(r.addr, id, insecure.NewCredentials())
}

func (r *rig) reportLoadsTo(addr, id string, creds credentials.TransportCredentials) loadpb.LoadReportingService_StreamLoadStatsClient {
	r.t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(creds))
	xdstest.NoError(r.t, err)
	r.t.Cleanup(func() { conn.Close() })
	stream, err := loadpb.NewLoadReportingServiceClient(conn).StreamLoadStats(r.ctx)
	xdstest.NoError(r.t, err)
	xdstest.NoError(r.t, stream.Send(&loadpb.LoadStatsRequest{Node: node(id)}))
	_, err = stream.Recv()
	xdstest.NoError(r.t, err)
	return stream
}

// What clients report is summed up by cluster and locality, and reported under the relay's node;
// nothing is lost while the control plane is away.
func TestLoadReports(t *testing.T) {
	t.Parallel()
	loads := controlplane.NewLoadReports(controlplane.LoadOptions{Interval: time.Second})
	r := newRigOver(t, meshtest.StartServer(t, meshtest.CollectLoads(loads)), func(o *relay.Options) {
		o.Loads.Interval = time.Second
	})
	t.Cleanup(loads.Close)
	report := func(id string) func(zone string, succeeded, failed uint64) {
		stream := r.reportLoads(id)
		return func(zone string, succeeded, failed uint64) {
			t.Helper()
			xdstest.NoError(t, stream.Send(&loadpb.LoadStatsRequest{ClusterStats: []*endpointpb.ClusterStats{{
				ClusterName: "c", TotalDroppedRequests: 1,
				DroppedRequests: []*endpointpb.ClusterStats_DroppedRequests{{Category: "lb", DroppedCount: 1}},
				UpstreamLocalityStats: []*endpointpb.UpstreamLocalityStats{{
					Locality:                &corepb.Locality{Zone: zone},
					TotalIssuedRequests:     succeeded + failed,
					TotalSuccessfulRequests: succeeded, TotalErrorRequests: failed,
					CpuUtilization: &endpointpb.UnnamedEndpointLoadMetricStats{NumRequestsFinishedWithMetric: 1, TotalMetricValue: 0.5},
					LoadMetricStats: []*endpointpb.EndpointLoadMetricStats{
						{MetricName: "named_metrics.q", NumRequestsFinishedWithMetric: 2, TotalMetricValue: 3},
					},
				}},
			}}}))
		}
	}
	await := func(a, b controlplane.LocalityLoad, dropped uint64) {
		t.Helper()
		_, err := loads.Await(r.ctx, func(all []controlplane.ClusterLoad) bool {
			if len(all) != 1 || all[0].Cluster != "c" || all[0].TotalDropped != dropped || all[0].Dropped["lb"] != dropped || len(all[0].Localities) != 2 {
				return false
			}
			for i, want := range []controlplane.LocalityLoad{a, b} {
				got := all[0].Localities[i]
				cpu, named := got.Metrics["cpu_utilization"], got.Metrics["named_metrics.q"]
				n := want.InProgress // how many reports there were
				if got.Zone != want.Zone || got.Issued != want.Issued || got.Succeeded != want.Succeeded || got.Failed != want.Failed ||
					cpu != (controlplane.MetricLoad{RPCs: n, Sum: 0.5 * float64(n)}) || named != (controlplane.MetricLoad{RPCs: 2 * n, Sum: 3 * float64(n)}) {
					return false
				}
			}
			return true
		})
		if err != nil {
			t.Fatalf("%v; the sums are %+v", err, loads.Snapshot())
		}
	}
	one, two := report("one"), report("two")
	one("a", 5, 1)
	two("a", 2, 0)
	two("b", 1, 0)
	await(controlplane.LocalityLoad{Zone: "a", Issued: 8, Succeeded: 7, Failed: 1, InProgress: 2},
		controlplane.LocalityLoad{Zone: "b", Issued: 1, Succeeded: 1, InProgress: 1}, 3)
	r.up.Stop()
	one("a", 10, 0)
	two("b", 0, 4)
	xdstest.NoError(t, r.up.Restart())
	await(controlplane.LocalityLoad{Zone: "a", Issued: 18, Succeeded: 17, Failed: 1, InProgress: 3},
		controlplane.LocalityLoad{Zone: "b", Issued: 5, Succeeded: 1, Failed: 4, InProgress: 2}, 5)
	if _, opened := loads.Streams(); opened > 3 {
		t.Errorf("%d streams of reports were opened, want one at a time", opened)
	}
}

// A metric that is no number is not added to those of other clients, whose sum it would be for good.
func TestLoadsThatAreNoNumbers(t *testing.T) {
	t.Parallel()
	loads := controlplane.NewLoadReports(controlplane.LoadOptions{Interval: time.Second})
	r := newRigOver(t, meshtest.StartServer(t, meshtest.CollectLoads(loads)), nil)
	t.Cleanup(loads.Close)
	stream := r.reportLoads("one")
	for _, value := range []float64{0.5, math.NaN(), math.Inf(1), math.Inf(-1), 0.25} {
		xdstest.NoError(t, stream.Send(&loadpb.LoadStatsRequest{ClusterStats: []*endpointpb.ClusterStats{{
			ClusterName: "c",
			UpstreamLocalityStats: []*endpointpb.UpstreamLocalityStats{{
				TotalIssuedRequests: 1,
				CpuUtilization:      &endpointpb.UnnamedEndpointLoadMetricStats{NumRequestsFinishedWithMetric: 1, TotalMetricValue: value},
			}},
		}}}))
	}
	_, err := loads.Await(r.ctx, func(all []controlplane.ClusterLoad) bool {
		return len(all) == 1 && len(all[0].Localities) == 1 && all[0].Localities[0].Issued == 5
	})
	xdstest.NoError(t, err)
	want := controlplane.MetricLoad{RPCs: 2, Sum: 0.75}
	if got := loads.Snapshot()[0].Localities[0].Metrics["cpu_utilization"]; got != want {
		t.Errorf("the control plane has %+v, want %+v", got, want)
	}
}

// RPCs in progress are those of the last report of each client, also after the control plane was away,
// and without clients that have left.
func TestLoadsInProgress(t *testing.T) {
	t.Parallel()
	loads := controlplane.NewLoadReports(controlplane.LoadOptions{Interval: time.Second})
	r := newRigOver(t, meshtest.StartServer(t, meshtest.CollectLoads(loads)), nil)
	t.Cleanup(loads.Close)
	one, two := r.reportLoads("one"), r.reportLoads("two")
	for _, step := range []struct {
		do   func()
		want uint64
	}{
		{func() { reportLoad(t, one, "c", 5) }, 5},
		{func() { reportLoad(t, two, "c", 3) }, 8},
		{func() { reportLoad(t, one, "c", 1) }, 4},
		{func() { r.up.Stop(); reportLoad(t, two, "c", 2); xdstest.NoError(t, r.up.Restart()) }, 3},
		{func() { xdstest.NoError(t, one.CloseSend()) }, 2},
		{func() { xdstest.NoError(t, two.CloseSend()) }, 0},
	} {
		step.do()
		awaitInProgress(t, r, loads, map[string]uint64{"c": step.want})
	}
}

// Loads go to the management server of the cluster's authority, and those of clusters that a client may
// not subscribe to nowhere.
func TestLoadsOfAuthorities(t *testing.T) {
	t.Parallel()
	collect := func() (*controlplane.LoadReports, *meshtest.Server) {
		loads := controlplane.NewLoadReports(controlplane.LoadOptions{Interval: time.Second})
		server := meshtest.StartServer(t, meshtest.CollectLoads(loads))
		t.Cleanup(loads.Close)
		return loads, server
	}
	loads, server := collect()
	otherLoads, otherServer := collect()
	access, err := controlplane.ParseAccess([]byte(`[{"san": "spiffe://mesh/shop", "names": ["shop.", "xdstp://other/"]}]`))
	xdstest.NoError(t, err)
	r := newRigOver(t, server, func(o *relay.Options) {
		other, err := bootstrap.Parse("test", otherServer.Bootstrap("relay"))
		xdstest.NoError(t, err)
		o.Bootstrap.Authorities["other"] = &bootstrap.Authority{Name: "other", Servers: other.Servers}
		o.Access = access
	})
	const ofOther = "xdstp://other/envoy.config.cluster.v3.Cluster/c"
	ca := testca.New(t)
	secure := r.serve(r.Relay, grpc.Creds(credentials.NewTLS(ca.ServerConfig())))
	stranger, shop := r.reportLoads("stranger"), r.reportLoadsTo(secure, "shop", identified(t, ca, "spiffe://mesh/shop"))
	reportLoad(t, stranger, "shop.c", 100)
	reportLoad(t, shop, "bank.c", 100)
	reportLoad(t, shop, "shop.c", 1)
	reportLoad(t, shop, ofOther, 2)
	awaitInProgress(t, r, loads, map[string]uint64{"shop.c": 1})
	awaitInProgress(t, r, otherLoads, map[string]uint64{ofOther: 2})
}

func reportLoad(t *testing.T, stream loadpb.LoadReportingService_StreamLoadStatsClient, cluster string, inProgress uint64) {
	t.Helper()
	xdstest.NoError(t, stream.Send(&loadpb.LoadStatsRequest{ClusterStats: []*endpointpb.ClusterStats{{
		ClusterName:           cluster,
		UpstreamLocalityStats: []*endpointpb.UpstreamLocalityStats{{TotalRequestsInProgress: inProgress}},
	}}}))
}

// awaitInProgress waits until the control plane has exactly these clusters, with so many RPCs in progress.
func awaitInProgress(t *testing.T, r *rig, loads *controlplane.LoadReports, want map[string]uint64) {
	t.Helper()
	_, err := loads.Await(r.ctx, func(all []controlplane.ClusterLoad) bool {
		got := map[string]uint64{}
		for _, c := range all {
			for _, at := range c.Localities {
				got[c.Cluster] += at.InProgress
			}
		}
		return maps.Equal(got, want)
	})
	if err != nil {
		t.Fatalf("%v: got %+v, want %v in progress", err, loads.Snapshot(), want)
	}
}
