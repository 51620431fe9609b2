package interop_test

import (
	"testing"

	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"go.opentelemetry.io/otel/sdk/metric"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/stats/opentelemetry"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/interop/gocp"
	"github.com/dynxds/dynxds/testutils"
)

// labels are the optional labels of an RPC that come from xDS.
var labels = []string{"grpc.lb.locality", "grpc.lb.backend_service", "csm.service_name", "csm.service_namespace_name"}

// gRPC's OpenTelemetry plugin sees the labels of gRFC A78, "Per-Call Metrics", and gRFC A89,
// "Add grpc.lb.backend_service to per-call metrics". Those of an RPC to an aggregate cluster are
// of the cluster that serves it (gRFC A89, "Rationale").
func TestOpenTelemetryHasTheLabelsOfRPCs(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, cluster string
		want          string
	}{
		{"cluster", "blue",
			`csm.service_name=shop csm.service_namespace_name=prod grpc.lb.backend_service=blue grpc.lb.locality={region="here", zone="z", sub_zone="s"}`},
		{"aggregate cluster whose first member is down", "all",
			`csm.service_name=unknown csm.service_namespace_name=unknown grpc.lb.backend_service=green grpc.lb.locality={region="there", zone="z", sub_zone="s"}`},
	} {
		xdstest.Parallel(t, tc.name, func(t *testing.T) {
			control := gocp.StartOver(t, gocp.Delta, nil)
			blue, green := testutils.StartBackend(t, "blue"), testutils.StartBackend(t, "green")
			if tc.cluster == "all" {
				blue.Stop()
			}
			named := xdsmsg.With(cluster("blue", "blue"), `metadata { filter_metadata { key: "com.google.csm.telemetry_labels" value {
				fields { key: "service_name" value { string_value: "shop" } }
				fields { key: "service_namespace" value { string_value: "prod" } }
			} } }`)
			resources := []proto.Message{
				listener("routes"), routes("routes", tc.cluster), named, placed("blue", "here", blue),
			}
			if tc.cluster == "all" {
				all := xdsmsg.AggregateCluster("all", "blue", "green")
				resources = append(resources, all, cluster("green", "green"), placed("green", "there", green))
			}
			control.Set(t, resources...)

			reader := metric.NewManualReader()
			cc := dial(t, builderOf(t, ours, control.Bootstrap()), "xds:///"+service, opentelemetry.DialOption(opentelemetry.Options{
				MetricsOptions: opentelemetry.MetricsOptions{
					MeterProvider:  metric.NewMeterProvider(metric.WithReader(reader)),
					OptionalLabels: labels,
				},
			}))
			ctx := testutils.Context(t)
			if _, err := testpb.NewTestServiceClient(cc).EmptyCall(ctx, new(testpb.Empty)); err != nil {
				t.Fatal(err)
			}
			xdstest.Equal(t, "grpc.client.attempt.duration", []string{tc.want + " grpc.method=grpc.testing.TestService/EmptyCall grpc.status=OK grpc.target=xds:///" + service},
				labelSets(ctx, t, reader, []string{opentelemetry.ClientAttemptDurationMetricName})[opentelemetry.ClientAttemptDurationMetricName])
		})
	}
}

// placed is the endpoints of a cluster in one region.
func placed(name, region string, backends ...*testutils.Backend) *endpointpb.ClusterLoadAssignment {
	l := xdsmsg.In("z")
	l.Region, l.SubZone = region, "s"
	for _, b := range backends {
		l.Endpoints = append(l.Endpoints, xdsmsg.Endpoint{Addr: b.Addr()})
	}
	return xdsmsg.Endpoints("endpoints-of-"+name, l)
}
