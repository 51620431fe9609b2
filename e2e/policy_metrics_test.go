package e2e_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	wrrlocalitypb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

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
	c.OutlierDetection = &clusterpb.OutlierDetection{
		Interval:                       durationpb.New(100 * time.Millisecond),
		BaseEjectionTime:               durationpb.New(time.Hour),
		MaxEjectionTime:                durationpb.New(time.Hour),
		MaxEjectionPercent:             wrapperspb.UInt32(1), // one at least
		EnforcingSuccessRate:           wrapperspb.UInt32(0),
		EnforcingFailurePercentage:     wrapperspb.UInt32(100),
		FailurePercentageMinimumHosts:  wrapperspb.UInt32(1),
		FailurePercentageRequestVolume: wrapperspb.UInt32(1),
	}
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
