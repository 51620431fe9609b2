package relay_test

import (
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadpb "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/dynxds/dynxds/controlplane"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/relay"
	"github.com/dynxds/dynxds/testutils"
)

// What clients report is summed up by cluster and locality, and reported under the relay's node;
// nothing is lost while the control plane is away.
func TestLoadReports(t *testing.T) {
	t.Parallel()
	loads := controlplane.NewLoadReports(controlplane.LoadOptions{Interval: time.Second})
	r := newRigOver(t, xdstest.StartServer(t, testutils.CollectLoads(loads)), func(o *relay.Options) {
		o.Loads.Interval = time.Second
	})
	t.Cleanup(loads.Close)
	conn, err := grpc.NewClient(r.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	xdstest.NoError(t, err)
	defer conn.Close()
	report := func(id string) func(zone string, succeeded, failed uint64) {
		stream, err := loadpb.NewLoadReportingServiceClient(conn).StreamLoadStats(r.ctx)
		xdstest.NoError(t, err)
		xdstest.NoError(t, stream.Send(&loadpb.LoadStatsRequest{Node: node(id)}))
		_, err = stream.Recv()
		xdstest.NoError(t, err)
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
