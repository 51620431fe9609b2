package controlplane

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// Clusters, localities, categories and metrics share one bound on memory. What is known is still counted
// when it is reached.
func TestLoadReportsHaveOneBoundOnMemory(t *testing.T) {
	t.Parallel()
	l := NewLoadReports(LoadOptions{})
	l.limit = 100 * loadBytes
	st := l.begin()
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
		st.add(stats)
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

// loadOf is a report of a cluster in one zone.
func loadOf(cluster, zone string, issued, succeeded, failed, inProgress uint64, cpu ...float64) []*endpointpb.ClusterStats {
	at := &endpointpb.UpstreamLocalityStats{
		Locality: &corepb.Locality{Zone: zone}, TotalIssuedRequests: issued, TotalSuccessfulRequests: succeeded,
		TotalErrorRequests: failed, TotalRequestsInProgress: inProgress,
	}
	for _, value := range cpu {
		at.CpuUtilization = &endpointpb.UnnamedEndpointLoadMetricStats{NumRequestsFinishedWithMetric: 1, TotalMetricValue: value}
	}
	return []*endpointpb.ClusterStats{{ClusterName: cluster, UpstreamLocalityStats: []*endpointpb.UpstreamLocalityStats{at}}}
}

// Counts of all clients are added up; RPCs on their way are those of the clients that are there. A value that is no number does not spoil
// a sum. Calls of Await hear of every report but those of nothing.
func TestLoadReportsAddUp(t *testing.T) {
	t.Parallel()
	l := NewLoadReports(LoadOptions{})
	a, b := l.begin(), l.begin()
	add := func(st *loadStream, stats []*endpointpb.ClusterStats, isNews bool) {
		t.Helper()
		before := l.changed
		if st.add(stats); (l.changed != before) != isNews {
			t.Errorf("there is news: %t, want %t", !isNews, isNews)
		}
	}
	dropping := loadOf("blue", "east", 5, 3, 1, 1)
	dropping[0].TotalDroppedRequests, dropping[0].DroppedRequests = 7, []*endpointpb.ClusterStats_DroppedRequests{{Category: "lb", DroppedCount: 4}}
	add(a, append(dropping, loadOf("green", "west", 1, 1, 0, 0)...), true)
	add(b, loadOf("blue", "east", 10, 2, 0, 8), true)
	add(b, nil, false)
	add(b, loadOf("blue", "east", 0, 0, 0, 8), true)
	for _, cpu := range []float64{2, math.NaN(), math.Inf(1), math.Inf(-1), 0.5} {
		first, second := loadOf("blue", "east", 0, 1, 0, 2, cpu), loadOf("blue", "east", 0, 0, 0, 4) // two priorities
		first[0].UpstreamLocalityStats = append(first[0].UpstreamLocalityStats, second[0].UpstreamLocalityStats...)
		add(b, first, true)
	}
	want := []ClusterLoad{
		{
			Cluster: "blue", TotalDropped: 7, Dropped: map[string]uint64{"lb": 4}, Localities: []LocalityLoad{{
				Zone: "east", Issued: 15, Succeeded: 10, Failed: 1, InProgress: 7, Metrics: map[string]MetricLoad{"cpu_utilization": {RPCs: 2, Sum: 2.5}},
			}},
		},
		{Cluster: "green", Localities: []LocalityLoad{{Zone: "west", Issued: 1, Succeeded: 1}}},
	}
	if diff := cmp.Diff(want, l.Snapshot(), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the loads (-want +got):\n%s", diff)
	}
	b.end()
	want[0].Localities[0].InProgress = 1
	if diff := cmp.Diff(want, l.Snapshot(), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the loads when a client has left (-want +got):\n%s", diff)
	}
}

// report has n localities of a cluster, with RPCs in progress or without.
func report(cluster string, n int, inProgress uint64) []*endpointpb.ClusterStats {
	stats := &endpointpb.ClusterStats{ClusterName: cluster}
	for i := range n {
		stats.UpstreamLocalityStats = append(stats.UpstreamLocalityStats, &endpointpb.UpstreamLocalityStats{
			Locality: &corepb.Locality{Zone: fmt.Sprint("zone", i)}, TotalIssuedRequests: 1, TotalRequestsInProgress: inProgress,
		})
	}
	return []*endpointpb.ClusterStats{stats}
}

// issued returns the RPCs of each cluster.
func issued(l *LoadReports) map[string]uint64 {
	rpcs := make(map[string]uint64)
	for _, c := range l.Snapshot() {
		for _, at := range c.Localities {
			rpcs[c.Cluster] += at.Issued
		}
	}
	return rpcs
}

// Where there is no room, clusters that nobody reports any more make some. Those that are reported stay, and so do those
// with RPCs in progress, as long as the client's stream does.
func TestLoadReportsForgetWhatNobodyReports(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const interval = time.Second
		l := NewLoadReports(LoadOptions{Interval: interval})
		l.limit = 200 * loadBytes
		one, two := l.begin(), l.begin()
		expect := func(when string, want map[string]uint64) {
			t.Helper()
			if got := issued(l); !maps.Equal(got, want) {
				t.Errorf("%s: the clusters have %v RPCs, want %v", when, got, want)
			}
			if l.bytes > l.limit {
				t.Errorf("%s: %d bytes are used, more than the limit", when, l.bytes)
			}
		}
		later := func() {
			for range forgetAfter + 1 {
				time.Sleep(interval)
				one.add(report("reported", 1, 0))
			}
		}
		one.add(report("reported", 1, 0))
		one.add(report("gone", 100, 0))
		two.add(report("running", 10, 1))
		two.add(report("new", 50, 0))
		expect("without room", map[string]uint64{"reported": 1, "gone": 100, "running": 10, "new": issued(l)["new"]})
		if n := issued(l)["new"]; n == 0 || n == 50 {
			t.Errorf("%d localities of a new cluster are counted, want as many as there is room for", n)
		}
		later()
		two.add(report("newer", 100, 0))
		expect("after three intervals", map[string]uint64{"reported": 1 + forgetAfter + 1, "running": 10, "newer": 100})
		two.end()
		later()
		one.add(report("newest", 140, 0))
		expect("after the end of a stream", map[string]uint64{"reported": 1 + 2*(forgetAfter+1), "newest": 140})
		one.add(report("reported", 1, 3))
		one.end()
		for _, c := range l.Snapshot() {
			for _, at := range c.Localities {
				if at.InProgress != 0 {
					t.Errorf("%s: %d RPCs are in progress after all streams have ended", c.Cluster, at.InProgress)
				}
			}
		}
		if want := 2*clusterBytes + 141*loadBytes; l.bytes < want || l.bytes > want+2000 {
			t.Errorf("%d bytes are used, want about %d", l.bytes, want)
		}
	})
}

// Rates are those of the last six intervals: a report is about the interval before it, and what is older does not count.
func TestRecentLoads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := NewLoadReports(LoadOptions{})
		st := l.begin()
		expect := func(when string, want ...RecentLoad) {
			t.Helper()
			if got := l.Recent(); !slices.Equal(got, want) {
				t.Errorf("%s: got %+v, want %+v", when, got, want)
			}
		}
		stats := func(service string) []*endpointpb.ClusterStats {
			return []*endpointpb.ClusterStats{{ClusterName: "c", ClusterServiceName: service, TotalDroppedRequests: 1, UpstreamLocalityStats: []*endpointpb.UpstreamLocalityStats{
				{TotalIssuedRequests: 10, TotalSuccessfulRequests: 6, TotalErrorRequests: 2},
			}}}
		}
		st.add(stats("a"))
		expect("after a report", RecentLoad{Cluster: "c", Issued: 10, Succeeded: 6, Failed: 2, Dropped: 1, Over: 10 * time.Second})
		time.Sleep(10 * time.Second)
		st.add(stats("b"))
		expect("with another service", RecentLoad{Cluster: "c", Issued: 20, Succeeded: 12, Failed: 4, Dropped: 2, Over: 20 * time.Second})
		for range 10 {
			time.Sleep(10 * time.Second)
			st.add(stats("a"))
		}
		time.Sleep(5 * time.Second)
		expect("later", RecentLoad{Cluster: "c", Issued: 60, Succeeded: 36, Failed: 12, Dropped: 6, Over: 55 * time.Second})
		time.Sleep(time.Minute)
		expect("when nobody reports")
	})
}
