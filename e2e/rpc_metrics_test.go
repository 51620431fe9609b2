package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/metrics"
	"github.com/dynxds/dynxds/testutils"
)

// rpcMeter is a stats handler that adds up dynxds's own metrics of RPCs.
type rpcMeter struct {
	noStats
	estats.UnimplementedMetricsRecorder
	xdstest.State
	counts map[string]int64 // by "name label…"; of histograms, the number of their values
	faults []string
	age    estats.AsyncMetricReporter
}

func (m *rpcMeter) add(d *estats.MetricDescriptor, n int64, labels []string) {
	name, ok := strings.CutPrefix(d.Name, "dynxds.client.")
	if !ok {
		return
	}
	m.Change(func() {
		if m.counts == nil {
			m.counts = make(map[string]int64)
		}
		m.counts[fmt.Sprintf("%s %q", name, labels)] += n
		if d.Default || len(labels) != len(d.Labels) || metrics.All().Metrics()[d.Name] != true {
			m.faults = append(m.faults, fmt.Sprintf("%+v recorded with %q", d, labels))
		}
	})
}

func (m *rpcMeter) RecordInt64Count(h *estats.Int64CountHandle, n int64, labels ...string) {
	m.add(h.Descriptor(), n, labels)
}

func (m *rpcMeter) RecordFloat64Histo(h *estats.Float64HistoHandle, v float64, labels ...string) {
	m.add(h.Descriptor(), 1, labels)
	if v <= 0 || v > 600 {
		m.Change(func() { m.faults = append(m.faults, fmt.Sprintf("an RPC took %v s", v)) })
	}
}

func (m *rpcMeter) RegisterAsyncReporter(r estats.AsyncMetricReporter, of ...estats.AsyncMetric) func() {
	if len(of) != 1 || of[0].Descriptor().Name != "dynxds.client.config.age" {
		return func() {}
	}
	m.Change(func() { m.age = r })
	return func() { m.Change(func() { m.age = nil }) }
}

// RecordInt64AsyncGauge implements estats.AsyncMetricsRecorder.
func (m *rpcMeter) RecordInt64AsyncGauge(h *estats.Int64AsyncGaugeHandle, _ int64, labels ...string) {
	m.add(h.Descriptor(), 1, labels)
}

// gRPC ignores the names of metrics that it does not know.
func TestAllMetricsAreRegisteredAndOff(t *testing.T) {
	t.Parallel()
	names := metrics.All().Metrics()
	if len(names) != 14 {
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
	m, good := newMesh(t), testutils.StartBackend(t, "good")
	gone := testutils.StartBackend(t, "gone")
	gone.Stop()
	second := xdsmsg.In("z", good.Addr())
	second.Priority = 1
	all := xdsmsg.SimpleEndpoints("dropping", good.Addr())
	all.Policy = &endpointpb.ClusterLoadAssignment_Policy{DropOverloads: []*endpointpb.ClusterLoadAssignment_Policy_DropOverload{
		{Category: "everything", DropPercentage: &typepb.FractionalPercent{Numerator: 100}}}}
	m.set(append(append(clusterOf("good", good), clusterOf("gone", gone)...),
		xdsmsg.AggregateCluster("any", "gone", "good"), xdsmsg.EDSCluster("dropping", ""), all,
		xdsmsg.EDSCluster("second", ""), xdsmsg.Endpoints("second", xdsmsg.In("z", gone.Addr()), second))...)
	retry := toCluster("good")
	retry.GetRoute().RetryPolicy = &routepb.RetryPolicy{RetryOn: "unavailable", NumRetries: wrapperspb.UInt32(1)}

	for _, test := range []struct {
		name  string // of the service
		route *routepb.Route
		named string // Route.name
		fails int    // attempts
		code  codes.Code
		// want is by metric and labels but for the target.
		want map[string]int64
	}{
		{"plain", toCluster("good"), "r", 0, codes.OK, map[string]int64{
			`calls "r" "good" "0" "OK"`: 1, `call.duration "r" "good" "0"`: 1}},
		{"nameless", toCluster("good"), "", 0, codes.OK, map[string]int64{
			`calls "*" "good" "0" "OK"`: 1, `call.duration "*" "good" "0"`: 1}},
		{"failed", toCluster("good"), "r", 1, codes.Unavailable, map[string]int64{
			`calls "r" "good" "0" "UNAVAILABLE"`: 1, `call.duration "r" "good" "0"`: 1}},
		{"retried", retry, "r", 1, codes.OK, map[string]int64{
			`calls "r" "good" "0" "OK"`: 1, `call.duration "r" "good" "0"`: 1, `call.retries "r" "good" "0"`: 1}},
		{"failover", toCluster("second"), "r", 0, codes.OK, map[string]int64{
			`calls "r" "second" "1" "OK"`: 1, `call.duration "r" "second" "1"`: 1}},
		{"aggregate", toCluster("any"), "r", 0, codes.OK, map[string]int64{
			`calls "r" "good" "0" "OK"`: 1, `call.duration "r" "good" "0"`: 1}},
		{"unreachable", toCluster("gone"), "r", 0, codes.Unavailable, map[string]int64{
			`calls "r" "gone" "" "UNAVAILABLE"`: 1, `call.duration "r" "gone" ""`: 1, `pick.failures "gone" "unreachable"`: 1}},
		{"dropped", toCluster("dropping"), "r", 0, codes.Unavailable, map[string]int64{
			`calls "r" "dropping" "" "UNAVAILABLE"`: 1, `call.duration "r" "dropping" ""`: 1, `pick.failures "dropping" "dropped"`: 1}},
		{"no route", xdsmsg.PathRoute("/other/Method", "good"), "r", 0, codes.Unavailable, map[string]int64{
			`calls "" "" "" "UNAVAILABLE"`: 1, `call.duration "" "" ""`: 1}},
	} {
		for _, k := range kinds {
			t.Run(test.name+"/"+string(k), func(t *testing.T) {
				name := strings.ReplaceAll(test.name, " ", "-")
				route := proto.Clone(test.route).(*routepb.Route)
				route.Name = test.named
				m.set(chain(name, route)...)
				fails := test.fails
				good.SetBehaviour(func(context.Context, testutils.RPC) error {
					if fails--; fails >= 0 {
						return testutils.TrailersOnly(status.Error(codes.Unavailable, "on purpose"))
					}
					return nil
				})
				meter := new(rpcMeter)
				cc := m.dial("xds:///"+name, grpc.WithStatsHandler(meter))
				_, err := call(testutils.Context(t), cc, k)
				checkStatus(t, err, test.code)
				want := make(map[string]int64)
				for of, n := range test.want {
					metric, labels, _ := strings.Cut(of, " ")
					want[fmt.Sprintf("%s [%q %s]", metric, "xds:///"+name, labels)] = n
				}
				meter.Await(t, "the RPC's metrics", func() bool { return maps.Equal(meter.counts, want) })

				var age estats.AsyncMetricReporter
				meter.Change(func() { age, meter.counts = meter.age, nil })
				xdstest.NoError(t, age.Report(meter))
				want = map[string]int64{fmt.Sprintf("config.age [%q]", "xds:///"+name): 1}
				xdstest.NoError(t, cc.Close())
				meter.Change(func() {
					if !maps.Equal(meter.counts, want) {
						t.Errorf("after the report of the gauges: %v", meter.counts)
					}
					if meter.age != nil {
						t.Error("the age of a closed channel's configuration is still reported")
					}
					if len(meter.faults) > 0 {
						t.Error(meter.faults)
					}
				})
			})
		}
	}
}
