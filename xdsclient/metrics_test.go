package xdsclient

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	estats "google.golang.org/grpc/experimental/stats"

	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/xdstest"
)

func init() { grpcbridge.RegisterMetrics(Metrics()...) }

// meter is a recorder that adds up what it is told, by metric and labels.
type meter struct {
	estats.UnimplementedMetricsRecorder

	mu        sync.Mutex
	counts    map[string]int64
	reporters map[int]estats.AsyncMetricReporter
	next      int
}

func newMeter() *meter {
	return &meter{counts: make(map[string]int64), reporters: make(map[int]estats.AsyncMetricReporter)}
}

// key writes a metric with its labels as "name{target,…}".
func key(d *estats.MetricDescriptor, labels []string) string {
	if len(labels) != len(d.Labels) {
		panic(fmt.Sprintf("%s was recorded with labels %q for %q", d.Name, labels, d.Labels))
	}
	return strings.TrimPrefix(d.Name, "grpc.xds_client.") + "{" + strings.Join(labels, ",") + "}"
}

func (m *meter) RecordInt64Count(h *estats.Int64CountHandle, n int64, labels ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts[key(h.Descriptor(), labels)] += n
}

func (m *meter) RegisterAsyncReporter(r estats.AsyncMetricReporter, _ ...estats.AsyncMetric) func() {
	m.mu.Lock()
	defer m.mu.Unlock()
	id := m.next
	m.next++
	m.reporters[id] = r
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.reporters, id)
	}
}

// gauges is what the reporters say in one collection.
type gauges map[string]int64

func (g gauges) RecordInt64AsyncGauge(h *estats.Int64AsyncGaugeHandle, value int64, labels ...string) {
	k := key(h.Descriptor(), labels)
	if _, twice := g[k]; twice {
		panic(k + " was reported twice in one collection")
	}
	g[k] = value
}

// read returns all counters, and all gauges as they are now.
func (m *meter) read(t testing.TB) map[string]int64 {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	g := gauges(maps.Clone(m.counts))
	for _, r := range m.reporters {
		if err := r.Report(g); err != nil {
			t.Error(err)
		}
	}
	return g
}

// A client that channels share reports to each of them, once per target.
func TestChannelsOfASharedClient(t *testing.T) {
	(&transcriptTest{over: "SotW", then: func(x *transcript) {
		c := x.c
		one, two, same, third := newMeter(), newMeter(), newMeter(), newMeter()
		detachMute := c.Attach("xds:///t", nil) // a channel without a recorder stands in nobody's way
		detachOne := c.Attach("xds:///t", one)
		detachSame := c.Attach("xds:///t", same)
		detachTwo := c.Attach("xds:///other", two)
		x.run("watch a -> stream; req a")
		push := func(version string) {
			x.run(fmt.Sprintf("send %s a=%[1]s -> ack %[1]s a; a = %[1]s", version))
		}
		valid := func(name string, m *meter, target string, updates, gauge int64) {
			t.Helper()
			got := m.read(t)
			xdstest.Equal(t, name+": updates", updates, got["resource_updates_valid{"+target+",passthrough:///0,envoy.config.cluster.v3.Cluster}"])
			xdstest.Equal(t, name+": resources", gauge, got["resources{"+target+",#old,acked,envoy.config.cluster.v3.Cluster}"])
		}
		push("1")
		valid("the first of a target", one, "xds:///t", 1, 1)
		valid("the second of it", same, "xds:///t", 0, 0)
		valid("another target", two, "xds:///other", 1, 1)

		detachOne()
		detachOne()
		detachMute()
		push("2")
		valid("the first, detached", one, "xds:///t", 1, 0)
		valid("the second takes over", same, "xds:///t", 1, 1)
		valid("another target, as before", two, "xds:///other", 2, 1)

		detachSame()
		detachTwo()
		push("3")
		defer c.Attach("xds:///t", third)()
		push("4")
		valid("the second, detached", same, "xds:///t", 1, 0)
		valid("a late one counts from then on", third, "xds:///t", 1, 1)
		for name, m := range map[string]*meter{"one": one, "same": same, "two": two} {
			xdstest.Equal(t, "reporters of "+name, 0, len(m.reporters))
		}
	}}).run(t)
}

// deaf is a recorder that does nothing, as the list is that gRPC gives a channel
// without stats handlers.
type deaf struct {
	estats.UnimplementedMetricsRecorder
}

// Events allocate nothing, with and without recorders.
func TestCountingAllocatesNothing(t *testing.T) {
	types := newTestTypes()
	k := newCore(t)
	events := func() {
		k.c.attached.received(k.channel, types.clusters, &outcome{total: 7, invalid: 4, unmatched: 5})
		k.c.attached.serverFailed(k.channel)
	}
	xdstest.Equal(t, "allocations without a recorder", 0, testing.AllocsPerRun(100, events))
	defer k.c.Attach("xds:///t", &deaf{})()
	events()
	xdstest.Equal(t, "allocations with a recorder", 0, testing.AllocsPerRun(100, events))
}
