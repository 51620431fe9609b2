package e2e_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/observe/metrics"
	"github.com/dynxds/dynxds/testutils"
)

// rpcMeter is a stats handler that adds up dynxds's own metrics of RPCs, by "name [labels]", as an OpenTelemetry plugin does.
type rpcMeter struct {
	noStats
	estats.UnimplementedMetricsRecorder
	xdstest.State
	counts    map[string]int64 // of histograms of floats, how many values
	reporters map[*estats.AsyncMetricReporter]estats.AsyncMetricReporter
	faults    []string
}

func newRPCMeter() *rpcMeter {
	return &rpcMeter{counts: make(map[string]int64), reporters: make(map[*estats.AsyncMetricReporter]estats.AsyncMetricReporter)}
}

// describe returns what counts and gauges have for a metric; "" for one that the test is not about.
func (m *rpcMeter) describe(d *estats.MetricDescriptor, labels []string) string {
	name, ok := strings.CutPrefix(d.Name, "dynxds.client.")
	// The process has the certificates of other tests, too.
	if !ok || strings.HasPrefix(name, "certificate.") {
		return ""
	}
	if d.Default || len(labels) != len(d.Labels) || !metrics.All().Metrics()[d.Name] {
		m.Change(func() { m.faults = append(m.faults, fmt.Sprintf("%+v recorded with %q", d, labels)) })
	}
	return fmt.Sprintf("%s %q", name, labels)
}

func (m *rpcMeter) RecordInt64Count(h *estats.Int64CountHandle, n int64, labels ...string) {
	if name := m.describe(h.Descriptor(), labels); name != "" {
		m.Change(func() { m.counts[name] += n })
	}
}

func (m *rpcMeter) RecordFloat64Histo(h *estats.Float64HistoHandle, v float64, labels ...string) {
	if name := m.describe(h.Descriptor(), labels); name != "" {
		m.Change(func() { m.counts[name]++ })
	}
	if v <= 0 || v > 600 {
		m.Change(func() { m.faults = append(m.faults, fmt.Sprintf("an RPC took %v s", v)) })
	}
}

func (m *rpcMeter) RegisterAsyncReporter(r estats.AsyncMetricReporter, _ ...estats.AsyncMetric) func() {
	m.Change(func() { m.reporters[&r] = r })
	return func() { m.Change(func() { delete(m.reporters, &r) }) }
}

// gauges is one round of gauges.
type gauges struct {
	*rpcMeter
	values map[string]int64
}

func (g gauges) RecordInt64AsyncGauge(h *estats.Int64AsyncGaugeHandle, value int64, labels ...string) {
	if name := g.describe(h.Descriptor(), labels); name != "" {
		g.values[name] = value
	}
}

// collect returns the counters, and the gauges as they are now. Reporters run unlocked, as they take locks under which the
// metrics of others are recorded.
func (m *rpcMeter) collect() (all map[string]int64) {
	var reporters []estats.AsyncMetricReporter
	m.Change(func() { all, reporters = maps.Clone(m.counts), slices.Collect(maps.Values(m.reporters)) })
	for _, r := range reporters {
		_ = r.Report(gauges{m, all}) // those of dynxds do not fail
	}
	return all
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
				got := meter.collect()
				if _, ok := got[age]; !ok || len(got) != len(want)+1 {
					t.Errorf("with the gauges: %v, want %s as well", got, age)
				}
				xdstest.NoError(t, cc.Close())
				if got := meter.collect(); !maps.Equal(got, want) {
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
