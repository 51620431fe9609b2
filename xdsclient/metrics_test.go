package xdsclient

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	estats "google.golang.org/grpc/experimental/stats"

	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
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
func (m *meter) read(t *testing.T) map[string]int64 {
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

// expect checks what a meter shows once the client is at rest.
func (m *meter) expect(t *testing.T, moment string, want map[string]int64) {
	t.Helper()
	synctest.Wait()
	if diff := cmp.Diff(want, m.read(t)); diff != "" {
		t.Errorf("%s: %s", moment, diff)
	}
}

const (
	onServer = "{xds:///t,passthrough:///script}"
	ofType   = "{xds:///t,passthrough:///script,envoy.config.cluster.v3.Cluster}"
)

// inState is the gauge of clusters with old-style names.
func inState(state string) string {
	return "resources{xds:///t,#old," + state + ",envoy.config.cluster.v3.Cluster}"
}

// gRFC A78, "XdsClient": what the five metrics count, by their labels.
func TestMetrics(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		m := newMeter()
		defer c.Attach("xds:///t", m)()
		m.expect(t, "at first", map[string]int64{})

		listen(t, c, types.clusters, "a")
		listen(t, c, types.clusters, "b")
		m.expect(t, "watched", map[string]int64{"connected" + onServer: 0, inState("requested"): 2})
		s := server.stream()
		m.expect(t, "a stream", map[string]int64{"connected" + onServer: 1, inState("requested"): 2})
		s.breakOff()
		lost := map[string]int64{"connected" + onServer: 0, inState("requested"): 2, "server_failure" + onServer: 1}
		m.expect(t, "the server lost", lost)
		server.stream().breakOff()
		m.expect(t, "still lost", lost)

		s = server.stream()
		s.send(types.clusters, "1", "n1", cluster("a", "x"), badCluster("b", "y"), cluster("unasked", "z"))
		m.expect(t, "one valid, one not, one unasked", map[string]int64{
			"connected" + onServer: 1, "server_failure" + onServer: 1,
			"resource_updates_valid" + ofType: 1, "resource_updates_invalid" + ofType: 1,
			inState("acked"): 1, inState("nacked"): 1,
		})
		// "The counter will be incremented even for resources that have not changed."
		s.send(types.clusters, "2", "n2", cluster("a", "x"), cluster("b", "y"))
		m.expect(t, "one unchanged", map[string]int64{
			"connected" + onServer: 1, "server_failure" + onServer: 1,
			"resource_updates_valid" + ofType: 3, "resource_updates_invalid" + ofType: 1,
			inState("acked"): 2,
		})
		s.send(types.clusters, "3", "n3", badCluster("a", "x"))
		m.expect(t, "one invalid, one deleted", map[string]int64{
			"connected" + onServer: 1, "server_failure" + onServer: 1,
			"resource_updates_valid" + ofType: 3, "resource_updates_invalid" + ofType: 2,
			inState("nacked_but_cached"): 1, inState("does_not_exist_but_cached"): 1,
		})
	}, testutils.ServerFeatures("ignore_resource_deletion"))
}

// gRFC A78 counts resources: one that goes by several names is one, and what a
// server says in place of a resource is none. The NACK counts in the same way.
func TestResourceOfSeveralNamesCountsOnce(t *testing.T) {
	overDelta(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		m := newMeter()
		defer c.Attach("xds:///t", m)()
		for _, name := range []string{"own", "alias", "other"} {
			listen(t, c, types.clusters, name)
		}
		s := server.askedDelta()
		s.send(types.clusters, "n1", has("own", "1", badCluster("own", "no"), "alias"), fails("other", codes.Internal, "no"))
		m.expect(t, "one invalid", map[string]int64{
			"connected" + onServer: 1, "resource_updates_invalid" + ofType: 1,
			inState("nacked"): 2, inState("received_error"): 1,
		})
		s.expect(deltaWant{typ: types.clusters, nonce: "n1",
			nack: `1 of 1 Cluster resources are invalid; Cluster "own": no; Cluster "alias": no`})
		s.send(types.clusters, "n2", has("own", "2", cluster("own", "x"), "alias"))
		m.expect(t, "one valid", map[string]int64{
			"connected" + onServer: 1, "resource_updates_invalid" + ofType: 1, "resource_updates_valid" + ofType: 1,
			inState("acked"): 2, inState("received_error"): 1,
		})
	})
}

// gRFC A88, "Cache Entry States, CSDS, and XdsClient Metrics": every value of
// grpc.xds.cache_state.
func TestCacheStateLabels(t *testing.T) {
	t.Parallel()
	held := &payload{}
	for want, r := range map[string]resource{
		"requested":                 {state: StateRequested},
		"acked":                     {state: StateACKed, payload: held},
		"nacked":                    {state: StateNACKed},
		"nacked_but_cached":         {state: StateNACKed, payload: held},
		"does_not_exist":            {state: StateDoesNotExist},
		"does_not_exist_but_cached": {state: StateDoesNotExist, payload: held},
		"received_error":            {state: StateReceivedError},
		"received_error_but_cached": {state: StateReceivedError, payload: held},
		"timeout":                   {state: StateTimeout},
	} {
		xdstest.Equal(t, "r.stateLabel()", want, r.stateLabel())
	}
}

// gRFC A78, grpc.xds.authority: the authority of new-style names.
func TestAuthorityLabel(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		m := newMeter()
		defer c.Attach("xds:///t", m)()
		listen(t, c, types.clusters, "xdstp://au/envoy.config.cluster.v3.Cluster/a")
		m.expect(t, "watched", map[string]int64{
			"connected" + onServer: 0,
			"resources{xds:///t,au,requested,envoy.config.cluster.v3.Cluster}": 1,
		})
	}, testutils.Authority("au", "passthrough:///script", nil))
}

// A client that channels share reports to each of them, once per target.
func TestChannelsOfASharedClient(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		one, two, same, third := newMeter(), newMeter(), newMeter(), newMeter()
		detachMute := c.Attach("xds:///t", nil) // a channel without a recorder stands in nobody's way
		detachOne := c.Attach("xds:///t", one)
		detachSame := c.Attach("xds:///t", same)
		detachTwo := c.Attach("xds:///other", two)
		listen(t, c, types.clusters, "a")
		s := server.stream()
		push := func(version string) {
			s.send(types.clusters, version, version, cluster("a", version))
			synctest.Wait()
		}
		valid := func(name string, m *meter, target string, updates, gauge int64) {
			t.Helper()
			got := m.read(t)
			if n := got["resource_updates_valid{"+target+",passthrough:///script,envoy.config.cluster.v3.Cluster}"]; n != updates {
				t.Errorf("%s: %d updates, want %d", name, n, updates)
			}
			xdstest.Equal(t, name+": resources",
				gauge, got["resources{"+target+",#old,acked,envoy.config.cluster.v3.Cluster}"])
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
	})
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
		k.c.attached.received("server", types.clusters, meterReading{3, 4, 5})
		k.c.attached.serverFailed("server")
	}
	xdstest.Equal(t, "allocations without a recorder", 0, testing.AllocsPerRun(100, events))
	defer k.c.Attach("xds:///t", &deaf{})()
	events()
	xdstest.Equal(t, "allocations with a recorder", 0, testing.AllocsPerRun(100, events))
}

// Collections, channels that come and go, and updates do not get in each other's
// way.
func TestMetricsWhileUpdatesRun(t *testing.T) {
	t.Parallel()
	types := newTestTypes()
	server := xdstest.StartServer(t)
	c := quickClient(t, server)
	a, _ := listen(t, c, types.clusters, "a")
	m := newMeter()
	stop := make(chan struct{})
	var work sync.WaitGroup
	for _, task := range []func(){
		func() { m.read(t) },
		func() { c.Attach("xds:///t", m)() },
		func() { c.Attach("xds:///u", m)() },
		func() { c.Dump() },
	} {
		work.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					task()
				}
			}
		})
	}
	for i := range 100 {
		text := fmt.Sprint(i)
		server.Set(t, cluster("a", text))
		a.untilCluster(text)
	}
	close(stop)
	work.Wait()
}
