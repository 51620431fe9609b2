package interop_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/client_side_weighted_round_robin/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/stats/opentelemetry"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/interop/gocp"
	"github.com/dynxds/dynxds/testutils"
)

// policyMetrics are metrics of gRPC's policies, of ours and of subchannels (gRFCs A78, A91 and A94).
var policyMetrics = []string{
	"grpc.lb.wrr.rr_fallback", "grpc.lb.wrr.endpoint_weights",
	"grpc.lb.outlier_detection.ejections_enforced", "grpc.lb.outlier_detection.ejections_unenforced",
	"grpc.subchannel.connection_attempts_succeeded", "grpc.subchannel.open_connections",
	"grpc.subchannel.disconnections", "grpc.subchannel.connection_attempts_failed",
}

// gRPC's OpenTelemetry plugin sees the same metrics of policies and subchannels, with the same
// labels, on channels of dynxds and of gRPC-Go's xds: gRFC A78, "WRR"; gRFC A89, "Add
// grpc.lb.backend_service to WRR metrics"; gRFC A91, "Proposal", without the optional label that
// gRPC-Go's descriptor does not have; gRFC A94, "Proposal". Both are in one process here: each
// gives labels to its own connections.
func TestOpenTelemetryHasTheMetricsOfPolicies(t *testing.T) {
	t.Parallel()
	const here = `{region="here", zone="z", sub_zone="s"}`
	labelled := "grpc.lb.backend_service=blue grpc.lb.locality=" + here
	target := " grpc.target=xds:///" + service
	detected := "grpc.lb.outlier_detection.detection_method=failure_percentage"
	want := map[string][]string{
		"grpc.lb.wrr.rr_fallback":                       {labelled + target},
		"grpc.lb.wrr.endpoint_weights":                  {labelled + target},
		"grpc.lb.outlier_detection.ejections_enforced":  {detected + target},
		"grpc.subchannel.connection_attempts_succeeded": {labelled + target},
		"grpc.subchannel.open_connections":              {labelled + " grpc.security_level=NoSecurity" + target},
		"grpc.subchannel.disconnections":                {labelled + target},
		"grpc.subchannel.connection_attempts_failed":    {labelled + target},
		"grpc.lb.outlier_detection.ejections_unenforced": {
			detected + " grpc.lb.outlier_detection.unenforced_reason=max_ejection_overflow" + target,
		},
	}
	for _, peer := range []string{grpcGo, ours} {
		xdstest.Parallel(t, peer, func(t *testing.T) {
			control := gocp.StartOver(t, gocp.Delta, nil)
			good, bad, worse := testutils.StartBackend(t, "good"), testutils.StartBackend(t, "bad"), testutils.StartBackend(t, "worse")
			bad.Fail(status.Error(codes.Internal, "broken"))
			worse.Fail(status.Error(codes.Internal, "broken"))
			control.Set(t, listener("routes"), routes("routes", "blue"), watched(), placed("blue", "here", good, bad, worse))

			reader, seen := metric.NewManualReader(), newMeter()
			cc := dial(t, builderOf(t, peer, control.Bootstrap()), "xds:///"+service, opentelemetry.DialOption(opentelemetry.Options{
				MetricsOptions: opentelemetry.MetricsOptions{
					MeterProvider:  metric.NewMeterProvider(metric.WithReader(reader)),
					Metrics:        opentelemetry.DefaultMetrics().Add(policyMetrics...),
					OptionalLabels: append(slices.Clone(labels), "grpc.security_level"),
				},
			}), grpc.WithStatsHandler(seen))
			ctx := testutils.Context(t)
			has := func(name string) (yes bool) { seen.state.Change(func() { yes = seen.names[name] }); return yes }
			for !has("grpc.lb.outlier_detection.ejections_enforced") || !has("grpc.lb.outlier_detection.ejections_unenforced") {
				testpb.NewTestServiceClient(cc).EmptyCall(ctx, new(testpb.Empty), grpc.WaitForReady(true))
				if ctx.Err() != nil {
					t.Fatal("nothing was ejected")
				}
			}
			good.Stop()
			seen.state.Await(t, "all metrics", func() bool {
				return len(seen.names) >= len(policyMetrics) && seen.names["grpc.subchannel.connection_attempts_failed"]
			})
			xdstest.Equal(t, "the metrics", want, labelSets(ctx, t, reader, policyMetrics))
		})
	}
}

// watched is the cluster "blue": weighted round robin in each locality, and outlier detection that
// ejects one endpoint at most.
func watched() *clusterpb.Cluster {
	return xdsmsg.With(cluster("blue", "blue"), `
		load_balancing_policy { policies { typed_extension_config { name: "policy" typed_config {
			[type.googleapis.com/envoy.extensions.load_balancing_policies.wrr_locality.v3.WrrLocality] {
				endpoint_picking_policy { policies { typed_extension_config { name: "policy" typed_config {
					[type.googleapis.com/envoy.extensions.load_balancing_policies.client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin] {}
				} } } }
			}
		} } } }
		outlier_detection {
			interval { nanos: 100000000 } base_ejection_time { seconds: 3600 } max_ejection_time { seconds: 3600 }
			max_ejection_percent { value: 1 } enforcing_success_rate { value: 0 } enforcing_failure_percentage { value: 100 }
			failure_percentage_minimum_hosts { value: 1 } failure_percentage_request_volume { value: 1 }
		}`)
}

// labelSets returns the sets of labels of metrics, each as "label=value label=value", sorted.
func labelSets(ctx context.Context, t *testing.T, reader metric.Reader, names []string) map[string][]string {
	t.Helper()
	var all metricdata.ResourceMetrics
	xdstest.NoError(t, reader.Collect(ctx, &all))
	sets := make(map[string]map[string]bool)
	add := func(name string, set attribute.Set) {
		var text []string
		for _, kv := range set.ToSlice() {
			text = append(text, string(kv.Key)+"="+kv.Value.AsString())
		}
		if sets[name] == nil {
			sets[name] = make(map[string]bool)
		}
		sets[name][strings.Join(text, " ")] = true
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if !slices.Contains(names, m.Name) {
				continue
			}
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					add(m.Name, p.Attributes)
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					add(m.Name, p.Attributes)
				}
			}
		}
	}
	sorted := make(map[string][]string)
	for name, set := range sets {
		sorted[name] = slices.Sorted(maps.Keys(set))
	}
	return sorted
}
