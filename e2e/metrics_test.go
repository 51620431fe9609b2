package e2e_test

import (
	"context"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/stats"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// meter is a stats handler that collects metrics, as an OpenTelemetry plugin does.
type meter struct {
	noStats
	estats.UnimplementedMetricsRecorder

	mu        sync.Mutex
	news      chan struct{} // closed and replaced with every change
	counts    map[string]int64
	reporters map[*estats.AsyncMetricReporter]estats.AsyncMetricReporter
}

var _ stats.Handler = (*meter)(nil)

func newMeter() *meter {
	return &meter{
		news:      make(chan struct{}),
		counts:    map[string]int64{},
		reporters: map[*estats.AsyncMetricReporter]estats.AsyncMetricReporter{},
	}
}

// xdsMetric returns "name label…", or "" for a metric of something else.
func xdsMetric(d *estats.MetricDescriptor, labels []string) string {
	name, ok := strings.CutPrefix(d.Name, "grpc.xds_client.")
	if !ok {
		return ""
	}
	return strings.Join(append([]string{name}, labels...), " ")
}

func (m *meter) RecordInt64Count(h *estats.Int64CountHandle, n int64, labels ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if name := xdsMetric(h.Descriptor(), labels); name != "" {
		m.counts[name] += n
		m.tell()
	}
}

func (m *meter) RegisterAsyncReporter(r estats.AsyncMetricReporter, _ ...estats.AsyncMetric) func() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reporters[&r] = r
	m.tell()
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.reporters, &r)
		m.tell()
	}
}

// tell wakes the waiting goroutines. The caller holds mu.
func (m *meter) tell() {
	close(m.news)
	m.news = make(chan struct{})
}

// collection is one round of gauges.
type collection map[string]int64

func (c collection) RecordInt64AsyncGauge(h *estats.Int64AsyncGaugeHandle, value int64, labels ...string) {
	if name := xdsMetric(h.Descriptor(), labels); name != "" {
		c[name] = value
	}
}

// collect returns the counters, and the gauges as they are now.
func (m *meter) collect() (map[string]int64, <-chan struct{}) {
	m.mu.Lock()
	reporters, all, news := maps.Clone(m.reporters), collection(maps.Clone(m.counts)), m.news
	m.mu.Unlock()
	for _, r := range reporters {
		_ = r.Report(all) // those of dynxds do not fail
	}
	return all, news
}

// await waits until the meter shows the wanted metrics.
func (m *meter) await(ctx context.Context, t *testing.T, want map[string]int64) {
	t.Helper()
	for {
		got, news := m.collect()
		diff := cmp.Diff(want, got)
		if diff == "" {
			return
		}
		select {
		case <-news:
		case <-ctx.Done():
			t.Fatalf("the metrics did not become what they should: %s", diff)
		}
	}
}

// gRFC A78, "XdsClient": when the control plane serves a channel, sends an invalid resource,
// and stops, the channel's stats plugin sees each, with the channel's target, until the
// channel is closed.
func TestMetricsReachTheChannelsStatsHandler(t *testing.T) {
	directly(t, "the management server of the client is the relay, which stays reachable")
	ctx := testutils.Context(t)
	m, backend, recorder := newMesh(t), testutils.StartBackend(t, "one"), newMeter()
	m.serve(service, "cluster", backend)
	const target = "xds:///" + service
	cc := m.dial(target, grpc.WithStatsHandler(recorder))
	mustReach(t, cc, unary, backend)

	onServer := " " + target + " " + m.Addr()
	want := map[string]int64{"connected" + onServer: 1}
	for _, typ := range []string{xdsmsg.ListenerType, xdsmsg.RouteType, xdsmsg.ClusterType, xdsmsg.EndpointType} {
		_, typ, _ = strings.Cut(typ, "/")
		want["resource_updates_valid"+onServer+" "+typ] = 1
		want["resources "+target+" #old acked "+typ] = 1
	}
	recorder.await(ctx, t, want)

	// A Listener that names no routes is not valid.
	m.set(xdsmsg.DefaultListener(service, ""))
	const listener = "envoy.config.listener.v3.Listener"
	want["resource_updates_invalid"+onServer+" "+listener] = 1
	delete(want, "resources "+target+" #old acked "+listener)
	want["resources "+target+" #old nacked_but_cached "+listener] = 1
	recorder.await(ctx, t, want)

	// The control plane stops.
	m.Stop()
	want["server_failure"+onServer] = 1
	want["connected"+onServer] = 0
	recorder.await(ctx, t, want)

	xdstest.NoError(t, cc.Close())
	for key := range want {
		if strings.HasPrefix(key, "connected ") || strings.HasPrefix(key, "resources ") {
			delete(want, key)
		}
	}
	recorder.await(ctx, t, want)
}
