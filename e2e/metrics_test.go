package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	wrrlocalitypb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/metrics"
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

// policyMeter is a stats handler that collects the metrics of policies and subchannels.
type policyMeter struct {
	noStats
	estats.UnimplementedMetricsRecorder
	xdstest.State
	counts map[string]int64 // by "name label=value label=value", without grpc.disconnect_error
}

func (m *policyMeter) RecordInt64Count(h *estats.Int64CountHandle, n int64, labels ...string) {
	m.add(h.Descriptor(), n, labels)
}

func (m *policyMeter) RecordInt64UpDownCount(h *estats.Int64UpDownCountHandle, n int64, labels ...string) {
	m.add(h.Descriptor(), n, labels)
}

func (m *policyMeter) RecordInt64Histo(h *estats.Int64HistoHandle, n int64, labels ...string) {
	m.add(h.Descriptor(), n, labels)
}

// RecordFloat64Histo counts the values.
func (m *policyMeter) RecordFloat64Histo(h *estats.Float64HistoHandle, _ float64, labels ...string) {
	m.add(h.Descriptor(), 1, labels)
}

func (m *policyMeter) add(d *estats.MetricDescriptor, n int64, values []string) {
	text := []string{d.Name}
	for i, label := range slices.Concat(d.Labels, d.OptionalLabels) {
		if label != "grpc.disconnect_error" { // the platform's
			text = append(text, label+"="+values[i])
		}
	}
	m.Change(func() { m.counts[strings.Join(text, " ")] += n })
}

func newPolicyMeter() *policyMeter { return &policyMeter{counts: make(map[string]int64)} }

// expect waits until all metrics with a prefix were recorded with these labels and no others, and
// as often as wanted; 0 for any number above 0.
func (m *policyMeter) expect(t *testing.T, prefix string, want map[string]int64) {
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

const (
	hereLabel    = `grpc.lb.locality={region="here", zone="z", sub_zone="s"}`
	serviceLabel = "grpc.lb.backend_service=shop"
	targetLabel  = "grpc.target=xds:///" + service
)

// serveHere serves a cluster "shop" in one locality.
func (m *mesh) serveHere(c *clusterpb.Cluster, backends ...*testutils.Backend) {
	m.t.Helper()
	var addrs []string
	for _, b := range backends {
		addrs = append(addrs, b.Addr())
	}
	e := xdsmsg.SimpleEndpoints("shop", addrs...)
	e.Endpoints[0].Locality = &corepb.Locality{Region: "here", Zone: "z", SubZone: "s"}
	m.set(append(chain(service, xdsmsg.PrefixRoute("", "shop")), c, e)...)
}

// gRFC A94, "Proposal": the metrics of a connection that is made, lost, and cannot be made again.
// Those of gRFC A78 for pick_first, which they replace, are not in the gRPC that this module needs.
func TestMetricsOfSubchannels(t *testing.T) {
	t.Parallel()
	m, backend, recorder := newMesh(t), testutils.StartBackend(t, "one"), newPolicyMeter()
	m.serveHere(xdsmsg.EDSCluster("shop", ""), backend)
	cc := m.dial("xds:///"+service, grpc.WithStatsHandler(recorder))
	mustReach(t, cc, unary, backend)
	labels := " " + targetLabel + " " + serviceLabel + " " + hereLabel
	open := "open_connections " + targetLabel + " " + serviceLabel + " grpc.security_level=NoSecurity " + hereLabel
	recorder.expect(t, "grpc.subchannel.", map[string]int64{"connection_attempts_succeeded" + labels: 1, open: 1})

	backend.Stop()
	recorder.Await(t, "a failed attempt", func() bool { return recorder.counts["grpc.subchannel.connection_attempts_failed"+labels] > 0 })
	recorder.Change(func() {
		for name, want := range map[string]int64{"disconnections" + labels: 1, open: 0, "connection_attempts_succeeded" + labels: 1} {
			if got := recorder.counts["grpc.subchannel."+name]; got != want {
				t.Errorf("%s is %d, want %d", name, got, want)
			}
		}
	})
}

// gRFC A78, "WRR" and "Optional xDS Locality Label", and gRFC A89, "Add grpc.lb.backend_service to
// WRR metrics": a policy of the channel's knows its cluster, and its locality if it has one.
func TestMetricsOfWeightedRoundRobin(t *testing.T) {
	t.Parallel()
	across := wrrPolicy(t)
	within, err := anypb.New(&wrrlocalitypb.WrrLocality{EndpointPickingPolicy: across})
	xdstest.NoError(t, err)
	for _, tc := range []struct {
		name, locality string
		policy         *clusterpb.LoadBalancingPolicy
	}{
		{"in each locality", hereLabel, &clusterpb.LoadBalancingPolicy{Policies: []*clusterpb.LoadBalancingPolicy_Policy{
			{TypedExtensionConfig: &corepb.TypedExtensionConfig{Name: "by locality", TypedConfig: within}},
		}}},
		{"across localities", "grpc.lb.locality=", across},
	} {
		xdstest.Parallel(t, tc.name, func(t *testing.T) {
			m, backend, recorder := newMesh(t), testutils.StartBackend(t, "one"), newPolicyMeter()
			c := xdsmsg.EDSCluster("shop", "")
			c.LoadBalancingPolicy = tc.policy
			m.serveHere(c, backend)
			mustReach(t, m.dial("xds:///"+service, grpc.WithStatsHandler(recorder)), unary, backend)
			labels := " " + targetLabel + " " + tc.locality + " " + serviceLabel
			recorder.expect(t, "grpc.lb.wrr.", map[string]int64{
				"rr_fallback" + labels: 0, "endpoint_weight_not_yet_usable" + labels: 0, "endpoint_weights" + labels: 0,
			})
		})
	}
}

// gRFC A91, "Proposal": an outlier that is ejected, and one that is not, with all their labels.
func TestMetricsOfOutlierDetection(t *testing.T) {
	t.Parallel()
	m, recorder := newMesh(t), newPolicyMeter()
	good, bad, worse := testutils.StartBackend(t, "good"), testutils.StartBackend(t, "bad"), testutils.StartBackend(t, "worse")
	bad.Fail(status.Error(codes.Internal, "broken"))
	worse.Fail(status.Error(codes.Internal, "broken"))
	c := xdsmsg.EDSCluster("shop", "")
	c.OutlierDetection = ejectFailing(100*time.Millisecond, time.Hour, 1) // one at least
	m.serveHere(c, good, bad, worse)
	cc := m.dial("xds:///"+service, grpc.WithStatsHandler(recorder))
	const prefix = "grpc.lb.outlier_detection."
	const method = " " + targetLabel + " " + prefix + "detection_method=failure_percentage"
	enforced := "ejections_enforced" + method + " " + serviceLabel
	unenforced := "ejections_unenforced" + method + " " + prefix + "unenforced_reason=max_ejection_overflow " + serviceLabel
	for ctx, over := testutils.Context(t), false; !over; {
		call(ctx, cc, unary, grpc.WaitForReady(true))
		recorder.Change(func() { over = recorder.counts[prefix+enforced] > 0 && recorder.counts[prefix+unenforced] > 0 })
		if ctx.Err() != nil {
			break
		}
	}
	recorder.expect(t, prefix, map[string]int64{enforced: 1, unenforced: 0})
}

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
