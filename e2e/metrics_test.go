package e2e_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/observe/metrics"
	"github.com/dynxds/dynxds/testutils"
)

// meter is a stats handler that adds up metrics, as an OpenTelemetry plugin does.
type meter struct {
	noStats
	estats.UnimplementedMetricsRecorder
	xdstest.State
	// describe returns what counts and gauges have for a metric; "" for one that the test is not about.
	describe  func(d *estats.MetricDescriptor, labels []string) string
	counts    map[string]int64 // of histograms of floats, how many values
	reporters map[*estats.AsyncMetricReporter]estats.AsyncMetricReporter
	changes   int
}

func newMeter(describe func(*estats.MetricDescriptor, []string) string) *meter {
	return &meter{
		describe: describe, counts: make(map[string]int64),
		reporters: make(map[*estats.AsyncMetricReporter]estats.AsyncMetricReporter),
	}
}

func (m *meter) add(d *estats.MetricDescriptor, n int64, labels []string) {
	if name := m.describe(d, labels); name != "" {
		m.Change(func() { m.counts[name] += n; m.changes++ })
	}
}

func (m *meter) RecordInt64Count(h *estats.Int64CountHandle, n int64, labels ...string) {
	m.add(h.Descriptor(), n, labels)
}

func (m *meter) RecordInt64UpDownCount(h *estats.Int64UpDownCountHandle, n int64, labels ...string) {
	m.add(h.Descriptor(), n, labels)
}

func (m *meter) RecordInt64Histo(h *estats.Int64HistoHandle, n int64, labels ...string) {
	m.add(h.Descriptor(), n, labels)
}

func (m *meter) RecordFloat64Histo(h *estats.Float64HistoHandle, _ float64, labels ...string) {
	m.add(h.Descriptor(), 1, labels)
}

func (m *meter) RegisterAsyncReporter(r estats.AsyncMetricReporter, _ ...estats.AsyncMetric) func() {
	m.Change(func() { m.reporters[&r] = r; m.changes++ })
	return func() { m.Change(func() { delete(m.reporters, &r); m.changes++ }) }
}

// gauges is one round of gauges.
type gauges struct {
	describe func(*estats.MetricDescriptor, []string) string
	values   map[string]int64
}

func (g gauges) RecordInt64AsyncGauge(h *estats.Int64AsyncGaugeHandle, value int64, labels ...string) {
	if name := g.describe(h.Descriptor(), labels); name != "" {
		g.values[name] = value
	}
}

// collect returns the counters, and the gauges as they are now, and how many changes there were before. Reporters
// run unlocked, as they take locks under which the metrics of others are recorded.
func (m *meter) collect() (all map[string]int64, changes int) {
	var reporters []estats.AsyncMetricReporter
	m.Change(func() {
		all, changes, reporters = maps.Clone(m.counts), m.changes, slices.Collect(maps.Values(m.reporters))
	})
	for _, r := range reporters {
		_ = r.Report(gauges{m.describe, all}) // those of dynxds do not fail
	}
	return all, changes
}

// await waits until the meter shows exactly the wanted metrics.
func (m *meter) await(t *testing.T, want map[string]int64) {
	t.Helper()
	for {
		got, changes := m.collect()
		diff := cmp.Diff(want, got)
		if diff == "" {
			return
		}
		m.Await(t, "other metrics (-want +got):\n"+diff, func() bool { return m.changes > changes })
	}
}

// xdsMetric describes metrics of the xDS client as "name label…".
func xdsMetric(d *estats.MetricDescriptor, labels []string) string {
	name, ok := strings.CutPrefix(d.Name, "grpc.xds_client.")
	if !ok {
		return ""
	}
	return strings.Join(append([]string{name}, labels...), " ")
}

// gRFC A78, "XdsClient": when the control plane serves a channel, sends an invalid resource,
// and stops, the channel's stats plugin sees each, with the channel's target, until the
// channel is closed.
func TestMetricsReachTheChannelsStatsHandler(t *testing.T) {
	directly(t, "the management server of the client is the relay, which stays reachable")
	m, backend, recorder := newMesh(t), testutils.StartBackend(t, "one"), newMeter(xdsMetric)
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
	recorder.await(t, want)

	// A Listener that names no routes is not valid.
	m.set(xdsmsg.DefaultListener(service, ""))
	const listener = "envoy.config.listener.v3.Listener"
	want["resource_updates_invalid"+onServer+" "+listener] = 1
	delete(want, "resources "+target+" #old acked "+listener)
	want["resources "+target+" #old nacked_but_cached "+listener] = 1
	recorder.await(t, want)

	// The control plane stops.
	m.Stop()
	want["server_failure"+onServer] = 1
	want["connected"+onServer] = 0
	recorder.await(t, want)

	xdstest.NoError(t, cc.Close())
	maps.DeleteFunc(want, func(key string, _ int64) bool {
		return strings.HasPrefix(key, "connected ") || strings.HasPrefix(key, "resources ")
	})
	recorder.await(t, want)
}

// newPolicyMeter collects metrics by "name label=value label=value", without grpc.disconnect_error, which depends
// on the platform.
func newPolicyMeter() *meter {
	return newMeter(func(d *estats.MetricDescriptor, values []string) string {
		text := []string{d.Name}
		for i, label := range slices.Concat(d.Labels, d.OptionalLabels) {
			if label != "grpc.disconnect_error" {
				text = append(text, label+"="+values[i])
			}
		}
		return strings.Join(text, " ")
	})
}

// expect waits until all metrics with a prefix were recorded with these labels and no others, and
// as often as wanted; 0 for any number above 0.
func (m *meter) expect(t *testing.T, prefix string, want map[string]int64) {
	t.Helper()
	read := func() map[string]int64 {
		got := make(map[string]int64)
		for text, n := range m.counts {
			name, ok := strings.CutPrefix(text, prefix)
			if _, any := want[name]; any && want[name] == 0 && n > 0 {
				n = 0
			}
			if ok {
				got[name] = n
			}
		}
		return got
	}
	defer func() {
		if t.Failed() {
			m.Change(func() { t.Logf("recorded: %v", m.counts) })
		}
	}()
	m.Await(t, prefix+"* as wanted", func() bool { return maps.Equal(read(), want) })
}

// rpcMeter collects dynxds's own metrics of RPCs, by "name [labels]".
type rpcMeter struct {
	*meter
	faults []string
}

func newRPCMeter() *rpcMeter {
	m := new(rpcMeter)
	m.meter = newMeter(func(d *estats.MetricDescriptor, labels []string) string {
		name, ok := strings.CutPrefix(d.Name, "dynxds.client.")
		// The process has the certificates of other tests, too.
		if !ok || strings.HasPrefix(name, "certificate.") {
			return ""
		}
		if d.Default || len(labels) != len(d.Labels) || !metrics.All().Metrics()[d.Name] {
			m.Change(func() { m.faults = append(m.faults, fmt.Sprintf("%+v recorded with %q", d, labels)) })
		}
		return fmt.Sprintf("%s %q", name, labels)
	})
	return m
}

func (m *rpcMeter) RecordFloat64Histo(h *estats.Float64HistoHandle, v float64, labels ...string) {
	m.meter.RecordFloat64Histo(h, v, labels...)
	if v <= 0 || v > 600 {
		m.Change(func() { m.faults = append(m.faults, fmt.Sprintf("an RPC took %v s", v)) })
	}
}

// gRPC ignores the names of metrics that it does not know.
func TestAllMetricsAreRegisteredAndOff(t *testing.T) {
	t.Parallel()
	names := metrics.All().Metrics()
	if len(names) != 17 {
		t.Errorf("%d metrics: %v", len(names), names)
	}
	for name := range names {
		if d := estats.DescriptorForMetric(name); d == nil || d.Default || d.Description == "" || d.Unit == "" {
			t.Errorf("%s is registered as %+v", name, d)
		}
	}
}

// Each RPC is counted once, with the route, the cluster and the priority that served it, and so are
// its retries and the picks that failed.
func TestMetricsOfRPCs(t *testing.T) {
	t.Parallel()
	inOneWay(t, "RPCs are counted in the process, however it gets its configuration")
	m, good, down := newMesh(t), testutils.StartBackend(t, "good"), testutils.StartBackend(t, "down")
	down.Stop()
	m.set(clustersOf(good, down),
		xdsmsg.EDSCluster("dropping", ""), with(endpointsOf("dropping", good), dropping, 100, "everything"),
		xdsmsg.EDSCluster("second", ""), xdsmsg.Endpoints("second", xdsmsg.In("z", down.Addr()), atPriority1(good)))
	retry := with(toCluster("good"), `route { retry_policy { retry_on: "unavailable" num_retries { value: 1 } } }`)

	for _, test := range []struct {
		name  string // of the service
		route *routepb.Route
		named string // Route.name
		fails int32  // attempts
		code  codes.Code
		// want is by metric and labels but for the target.
		want map[string]int64
	}{
		{"plain", toCluster("good"), "r", 0, codes.OK, map[string]int64{
			`calls "r" "good" "0" "OK"`: 1, `call.duration "r" "good" "0"`: 1}},
		{"retried", retry, "r", 1, codes.OK, map[string]int64{
			`calls "r" "good" "0" "OK"`: 1, `call.duration "r" "good" "0"`: 1, `call.retries "r" "good" "0"`: 1}},
		{"failover", toCluster("second"), "r", 0, codes.OK, map[string]int64{
			`calls "r" "second" "1" "OK"`: 1, `call.duration "r" "second" "1"`: 1}},
		{"dropped", toCluster("dropping"), "r", 0, codes.Unavailable, map[string]int64{
			`calls "r" "dropping" "" "UNAVAILABLE"`: 1, `call.duration "r" "dropping" ""`: 1, `pick.failures "dropping" "dropped"`: 1}},
		{"no route", xdsmsg.PathRoute("/other/Method", "good"), "r", 0, codes.Unavailable, map[string]int64{
			`calls "" "" "" "UNAVAILABLE"`: 1, `call.duration "" "" ""`: 1}},
	} {
		for _, k := range kinds {
			t.Run(test.name+"/"+string(k), func(t *testing.T) {
				// The gauges are of all channels of the process with the target.
				name := "metrics-" + strings.ReplaceAll(test.name, " ", "-")
				route := proto.Clone(test.route).(*routepb.Route)
				route.Name = test.named
				m.set(chain(name, route))
				failTimes(good, test.fails)
				meter := newRPCMeter()
				cc := m.dial("xds:///"+name, grpc.WithStatsHandler(meter))
				_, err := call(testutils.Context(t), cc, k)
				checkStatus(t, err, test.code)
				want := make(map[string]int64)
				for of, n := range test.want {
					metric, labels, _ := strings.Cut(of, " ")
					want[fmt.Sprintf("%s [%q %s]", metric, "xds:///"+name, labels)] = n
				}
				meter.Await(t, "the RPC's metrics", func() bool { return maps.Equal(meter.counts, want) })

				age := fmt.Sprintf("config.age [%q]", "xds:///"+name)
				got, _ := meter.collect()
				if _, ok := got[age]; !ok || len(got) != len(want)+1 {
					t.Errorf("with the gauges: %v, want %s as well", got, age)
				}
				xdstest.NoError(t, cc.Close())
				if got, _ := meter.collect(); !maps.Equal(got, want) {
					t.Errorf("after the channel is closed: %v, want no gauges", got)
				}
				meter.Change(func() {
					if len(meter.faults) > 0 {
						t.Error(meter.faults)
					}
				})
			})
		}
	}
}
