package controlplane

import (
	"fmt"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
)

// Clusters, localities, categories and metrics share one bound on memory. What is known is still counted
// when it is reached.
func TestLoadReportsHaveOneBoundOnMemory(t *testing.T) {
	t.Parallel()
	l := NewLoadReports(LoadOptions{})
	l.room = 100 * loadBytes
	st := &loadStream{reports: l, inProgress: make(map[*localityLoad]uint64)}
	var stats []*endpointpb.ClusterStats
	for i := range 50 {
		name := fmt.Sprint(i)
		stats = append(stats, &endpointpb.ClusterStats{
			ClusterName:     name,
			DroppedRequests: []*endpointpb.ClusterStats_DroppedRequests{{Category: name, DroppedCount: 1}},
			UpstreamLocalityStats: []*endpointpb.UpstreamLocalityStats{{
				Locality: &corepb.Locality{Zone: name}, TotalIssuedRequests: 1,
				LoadMetricStats: []*endpointpb.EndpointLoadMetricStats{{MetricName: name, NumRequestsFinishedWithMetric: 1, TotalMetricValue: 1}},
			}},
		})
	}
	for range 2 {
		st.addReport(stats)
	}
	things := 0
	for _, c := range l.Snapshot() {
		things += 1 + len(c.Dropped) + len(c.Localities)
		for _, at := range c.Localities {
			things += len(at.Metrics)
		}
	}
	if things == 0 || things > 100 {
		t.Errorf("%d names are remembered, want at most 100", things)
	}
	if first := l.Snapshot()[0]; first.Dropped["0"] != 2 || len(first.Localities) != 1 || first.Localities[0].Issued != 2 || first.Localities[0].Metrics["0"].Sum != 2 {
		t.Errorf("the first cluster has %+v, want two of each", first)
	}
}
