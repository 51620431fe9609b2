package controlplane_test

import (
	"context"
	"io"
	"math"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadpb "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
)

// loadWorld is LoadReports on a real port, and a way to it.
type loadWorld struct {
	*controlplane.LoadReports
	t      *testing.T
	client loadpb.LoadReportingServiceClient
}

func newLoadWorld(t *testing.T, opts controlplane.LoadOptions) *loadWorld {
	t.Helper()
	reports := controlplane.NewLoadReports(opts)
	return &loadWorld{LoadReports: reports, t: t, client: loadpb.NewLoadReportingServiceClient(serve(t, reports))}
}

// reportingClient is a stream that has introduced itself.
type reportingClient struct {
	t      *testing.T
	stream loadpb.LoadReportingService_StreamLoadStatsClient
	order  *loadpb.LoadStatsResponse
	leave  context.CancelFunc
}

func (w *loadWorld) join() *reportingClient {
	w.t.Helper()
	ctx, leave := context.WithTimeout(w.t.Context(), 30*time.Second)
	w.t.Cleanup(leave)
	s, err := w.client.StreamLoadStats(ctx)
	xdstest.NoError(w.t, err)
	c := &reportingClient{t: w.t, stream: s, leave: leave}
	c.send(&loadpb.LoadStatsRequest{Node: &corepb.Node{Id: "n"}})
	if c.order, err = s.Recv(); err != nil {
		w.t.Fatal(err)
	}
	return c
}

func (c *reportingClient) send(r *loadpb.LoadStatsRequest) {
	c.t.Helper()
	xdstest.NoError(c.t, c.stream.Send(r))
}

func (c *reportingClient) report(stats ...*endpointpb.ClusterStats) {
	c.t.Helper()
	c.send(&loadpb.LoadStatsRequest{ClusterStats: stats})
}

// locality is the load of a zone.
func locality(zone string, issued, succeeded, failed, inProgress uint64) *endpointpb.UpstreamLocalityStats {
	return &endpointpb.UpstreamLocalityStats{
		Locality: &corepb.Locality{Zone: zone}, TotalIssuedRequests: issued, TotalSuccessfulRequests: succeeded,
		TotalErrorRequests: failed, TotalRequestsInProgress: inProgress,
	}
}

func of(cluster string, localities ...*endpointpb.UpstreamLocalityStats) *endpointpb.ClusterStats {
	return &endpointpb.ClusterStats{ClusterName: cluster, ClusterServiceName: "eds", UpstreamLocalityStats: localities}
}

// expect waits until the loads are those.
func (w *loadWorld) expect(when string, want ...controlplane.ClusterLoad) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
	defer cancel()
	diff := ""
	_, err := w.Await(ctx, func(got []controlplane.ClusterLoad) bool {
		diff = cmp.Diff(want, got, cmpopts.EquateEmpty())
		return diff == ""
	})
	if err != nil {
		w.t.Fatalf("%s: %v (-want +got):\n%s", when, err, diff)
	}
	if diff := cmp.Diff(want, w.Snapshot(), cmpopts.EquateEmpty()); diff != "" {
		w.t.Errorf("%s: Snapshot (-want +got):\n%s", when, diff)
	}
}

// lrs.proto, LoadStatsResponse: what clients are asked for.
func TestLoadReportsAsk(t *testing.T) {
	t.Parallel()
	for interval, want := range map[time.Duration]time.Duration{0: 10 * time.Second, time.Second: time.Second} {
		order := &loadpb.LoadStatsResponse{SendAllClusters: true, LoadReportingInterval: durationpb.New(want)}
		if diff := cmp.Diff(order, newLoadWorld(t, controlplane.LoadOptions{Interval: interval}).join().order, protocmp.Transform()); diff != "" {
			t.Errorf("the order (-want +got):\n%s", diff)
		}
	}
}

// Counts of all clients are added up; RPCs on their way are those of the clients
// that are there.
func TestLoadReportsAddUp(t *testing.T) {
	t.Parallel()
	w := newLoadWorld(t, controlplane.LoadOptions{})
	a, b := w.join(), w.join()
	w.expect("before the first report")
	dropping := of("blue", locality("east", 5, 3, 1, 1))
	dropping.TotalDroppedRequests = 7
	dropping.DroppedRequests = []*endpointpb.ClusterStats_DroppedRequests{{Category: "lb", DroppedCount: 4}}
	a.report(dropping, of("green", locality("west", 1, 1, 0, 0)))
	b.report(of("blue", locality("east", 10, 2, 0, 8)))
	green := controlplane.ClusterLoad{Cluster: "green", Service: "eds", Localities: []controlplane.LocalityLoad{{Zone: "west", Issued: 1, Succeeded: 1}}}
	blue := controlplane.ClusterLoad{
		Cluster: "blue", Service: "eds", TotalDropped: 7, Dropped: map[string]uint64{"lb": 4},
		Localities: []controlplane.LocalityLoad{{Zone: "east", Issued: 15, Succeeded: 5, Failed: 1, InProgress: 9}},
	}
	w.expect("after a report of each", blue, green)

	measured := locality("east", 0, 2, 0, 6)
	measured.CpuUtilization = &endpointpb.UnnamedEndpointLoadMetricStats{NumRequestsFinishedWithMetric: 2, TotalMetricValue: 1.5}
	measured.LoadMetricStats = []*endpointpb.EndpointLoadMetricStats{{MetricName: "named_metrics.q", NumRequestsFinishedWithMetric: 1, TotalMetricValue: 7}}
	b.report(of("blue", measured))
	east := &blue.Localities[0]
	east.Succeeded, east.InProgress = 7, 7
	east.Metrics = map[string]controlplane.MetricLoad{"cpu_utilization": {RPCs: 2, Sum: 1.5}, "named_metrics.q": {RPCs: 1, Sum: 7}}
	w.expect("after another report", blue, green)

	b.leave()
	east.InProgress = 1
	w.expect("when a client has left", blue, green)
	if open, opened := w.Streams(); open != 1 || opened != 2 {
		t.Errorf("%d streams of %d, want 1 of 2", open, opened)
	}
}

// A report without news wakes nobody: that of a client without RPCs, or with as many in progress as before.
func TestReportsWithoutNewsWakeNobody(t *testing.T) {
	t.Parallel()
	w := newLoadWorld(t, controlplane.LoadOptions{})
	c := w.join()
	c.report(of("blue", locality("east", 1, 0, 0, 1)))
	calls := 0
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err := w.Await(ctx, func(l []controlplane.ClusterLoad) bool {
		if len(l) == 0 {
			return false
		}
		if calls++; calls == 1 {
			for range 100 {
				c.report()
				c.report(of("blue"))
				c.report(of("blue", locality("east", 0, 0, 0, 1)))
			}
			c.report(of("blue", locality("east", 0, 1, 0, 0)))
		}
		return l[0].Localities[0].Succeeded == 1
	})
	xdstest.NoError(t, err)
	if calls != 2 {
		t.Errorf("it was called %d times, want for the first and for the last report", calls)
	}
}

// A value that is no number does not spoil the sum of those of other clients.
func TestLoadReportsStayNumbers(t *testing.T) {
	t.Parallel()
	w := newLoadWorld(t, controlplane.LoadOptions{})
	measured := func(value float64) *endpointpb.ClusterStats {
		l := locality("east", 1, 1, 0, 0)
		l.CpuUtilization = &endpointpb.UnnamedEndpointLoadMetricStats{NumRequestsFinishedWithMetric: 1, TotalMetricValue: value}
		return of("blue", l)
	}
	w.join().report(measured(2), measured(math.NaN()), measured(math.Inf(1)), measured(math.Inf(-1)), measured(0.5))
	w.expect("after values of all kinds", controlplane.ClusterLoad{Cluster: "blue", Service: "eds", Localities: []controlplane.LocalityLoad{{
		Zone: "east", Issued: 5, Succeeded: 5, Metrics: map[string]controlplane.MetricLoad{"cpu_utilization": {RPCs: 2, Sum: 2.5}},
	}}})
}

func TestLoadStreamsEnd(t *testing.T) {
	t.Parallel()
	w := newLoadWorld(t, controlplane.LoadOptions{})
	done := w.join()
	xdstest.NoError(t, done.stream.CloseSend())
	if _, err := done.stream.Recv(); err != io.EOF {
		t.Errorf("a stream whose client is done ended with %v, want OK", err)
	}
	s, err := w.client.StreamLoadStats(t.Context())
	xdstest.NoError(t, err)
	xdstest.NoError(t, s.Send(&loadpb.LoadStatsRequest{}))
	if _, err := s.Recv(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a stream without a node ended with %v, want INVALID_ARGUMENT", err)
	}
	open := w.join()
	w.Close()
	if _, err := open.stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("an open stream ended with %v, want UNAVAILABLE", err)
	}
	if s, err = w.client.StreamLoadStats(t.Context()); err == nil {
		_, err = s.Recv()
	}
	if status.Code(err) != codes.Unavailable {
		t.Errorf("a stream after Close ended with %v, want UNAVAILABLE", err)
	}
}
