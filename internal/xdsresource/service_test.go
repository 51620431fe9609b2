package xdsresource

import (
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// The labels csm.service_name and csm.service_namespace_name come from Cluster.metadata, and
// are "unknown" if it does not have them, as in gRPC-Go, C++ and Java.
func TestService(t *testing.T) {
	t.Parallel()
	type fields = map[string]*structpb.Value
	text, number := structpb.NewStringValue, structpb.NewNumberValue
	under := func(key string, f fields) *clusterpb.Cluster {
		return edsCluster(func(c *clusterpb.Cluster) {
			c.Metadata = &corepb.Metadata{FilterMetadata: map[string]*structpb.Struct{key: {Fields: f}}}
		})
	}
	checkEach(t, "Service", func(t *testing.T, resource *clusterpb.Cluster) *Service {
		return mustDecode[Cluster](t, ClusterType, resource).Service
	}, rows[*clusterpb.Cluster, *Service]{
		{"no metadata", edsCluster(), nil},
		{"other metadata", under("other", fields{"service_name": text("s")}), nil},
		{"both", under(telemetryMetadata, fields{"service_name": text("s"), "service_namespace": text("n")}), &Service{"s", "n"}},
		{"one", under(telemetryMetadata, fields{"service_namespace": text("n")}), &Service{"unknown", "n"}},
		{"empty strings", under(telemetryMetadata, fields{"service_name": text(""), "service_namespace": text("")}), &Service{}},
		{"not strings", under(telemetryMetadata, fields{"service_name": number(1), "service_namespace": structpb.NewNullValue()}), &Service{"unknown", "unknown"}},
	})
}
