package controlplane

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/dynxds/dynxds/internal/bounds"
)

// Clusters, localities, categories and metrics share one bound on memory. What is known is still counted
// when it is reached.
func TestLoadReportsHaveOneBoundOnMemory(t *testing.T) {
	t.Parallel()
	l := NewLoadReports(LoadOptions{})
	l.room = newLoadRoom(200 * loadBytes) // a peer that is alone has half
	st := l.begin("peer")
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

// loadOf is a report of n localities of a cluster with RPCs in progress.
func loadOf(cluster, prefix string, n int) []*endpointpb.ClusterStats {
	stats := &endpointpb.ClusterStats{ClusterName: cluster}
	for i := range n {
		stats.UpstreamLocalityStats = append(stats.UpstreamLocalityStats, &endpointpb.UpstreamLocalityStats{
			Locality: &corepb.Locality{Zone: fmt.Sprint(prefix, i)}, TotalIssuedRequests: 1, TotalRequestsInProgress: 1,
		})
	}
	return []*endpointpb.ClusterStats{stats}
}

// issued returns the RPCs and localities of a cluster.
func issued(l *LoadReports, cluster string) (rpcs uint64, localities int) {
	for _, c := range l.Snapshot() {
		if c.Cluster == cluster {
			localities = len(c.Localities)
			for _, at := range c.Localities {
				rpcs += at.Issued
			}
		}
	}
	return rpcs, localities
}

// A peer that fills its share leaves room for others. What it stops to report, whether it stays or leaves, makes
// room for what it or another one reports then; what is still reported stays.
func TestLoadReportsForgetWhatNobodyReports(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const interval = time.Second
		l := NewLoadReports(LoadOptions{Interval: interval})
		l.room = newLoadRoom(400 * loadBytes)
		greedy, other := l.begin("greedy"), l.begin("other")
		report := func(st *loadStream, stats []*endpointpb.ClusterStats) {
			st.addReport(stats)
			l.mu.Lock()
			defer l.mu.Unlock()
			if used := l.room.bytes.Used(); used > 400*loadBytes {
				t.Errorf("%d bytes are used, more than the limit", used)
			}
		}
		report(greedy, loadOf("stays", "zone", 1))
		report(greedy, loadOf("greedy", "first", 1000))
		if _, n := issued(l, "greedy"); n == 0 || n > 200 {
			t.Errorf("%d localities of a greedy peer are remembered, want some, of half of the room", n)
		}
		report(other, loadOf("other", "zone", 10))
		if rpcs, _ := issued(l, "other"); rpcs != 10 {
			t.Errorf("%d RPCs of another peer are counted, want 10", rpcs)
		}
		for range forgetAfter + 1 {
			time.Sleep(interval)
			report(greedy, loadOf("stays", "zone", 1))
		}
		report(greedy, loadOf("second", "zone", 100))
		if rpcs, _ := issued(l, "second"); rpcs != 100 {
			t.Errorf("%d RPCs of a cluster are counted after the peer has stopped to report another one, want 100", rpcs)
		}
		if _, n := issued(l, "greedy"); n != 0 {
			t.Errorf("%d localities that nobody reports are remembered where there is no room", n)
		}
		if rpcs, _ := issued(l, "stays"); rpcs != forgetAfter+2 {
			t.Errorf("%d RPCs of a cluster that is still reported are counted, want %d", rpcs, forgetAfter+2)
		}
		greedy.end()
		time.Sleep((forgetAfter + 1) * interval)
		report(other, loadOf("other", "more", 120))
		if rpcs, _ := issued(l, "other"); rpcs != 120 {
			t.Errorf("%d RPCs of another peer are counted after the greedy one has left, want 120", rpcs)
		}
		if _, n := issued(l, "stays"); n != 0 || len(l.room.peers) != 1 {
			t.Errorf("%d localities and %d peers are remembered after a peer has left, want those of the other one", n, len(l.room.peers))
		}
		other.end()
		if n := l.Snapshot(); len(n) != 1 || n[0].Localities[0].InProgress != 0 {
			t.Errorf("the loads are %+v, want one cluster without RPCs in progress", n)
		}
		if used, want := l.room.bytes.Used(), int64(clusterBytes+120*loadBytes); used < want || used > want+2000 {
			t.Errorf("%d bytes are used, want about %d", used, want)
		}
	})
}

// Names of metrics and categories that a client has invented make room for real ones of the same place.
func TestLoadReportsForgetInventedNames(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := NewLoadReports(LoadOptions{Interval: time.Second})
		st := l.begin("peer")
		report := func(prefix string, n int) {
			c := loadOf("c", "zone", 1)
			for i := range n {
				name := fmt.Sprint(prefix, i)
				c[0].DroppedRequests = append(c[0].DroppedRequests, &endpointpb.ClusterStats_DroppedRequests{Category: name, DroppedCount: 1})
				c[0].UpstreamLocalityStats[0].LoadMetricStats = append(c[0].UpstreamLocalityStats[0].LoadMetricStats,
					&endpointpb.EndpointLoadMetricStats{MetricName: name, NumRequestsFinishedWithMetric: 1, TotalMetricValue: 1})
			}
			st.addReport(c)
		}
		report("invented", bounds.LoadNames+1)
		for range forgetAfter + 1 {
			time.Sleep(time.Second)
			report("", 0)
		}
		report("real", 10)
		c := l.Snapshot()[0]
		if c.Dropped["real9"] != 1 || len(c.Dropped) != 10 || c.Localities[0].Metrics["real9"].RPCs != 1 || len(c.Localities[0].Metrics) != 10 {
			t.Errorf("%d categories and %d metrics are remembered, want those that are reported", len(c.Dropped), len(c.Localities[0].Metrics))
		}
		if c.Localities[0].Issued != forgetAfter+3 {
			t.Errorf("%d RPCs are counted, want %d", c.Localities[0].Issued, forgetAfter+3)
		}
	})
}
