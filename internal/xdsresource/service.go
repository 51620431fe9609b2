package xdsresource

import (
	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// Service names a service for telemetry, by what Cluster.metadata has in its filter_metadata
// for "com.google.csm.telemetry_labels".
type Service struct {
	// Name is "service_name", Namespace is "service_namespace". One that is missing or is not a
	// string is "unknown", as in gRPC's own clients.
	Name, Namespace string
}

// telemetryMetadata is the key of Service in filter_metadata.
const telemetryMetadata = "com.google.csm.telemetry_labels"

// serviceOf returns nil if the Cluster has no such metadata.
func serviceOf(pb *clusterpb.Cluster) *Service {
	labels := pb.GetMetadata().GetFilterMetadata()[telemetryMetadata].GetFields()
	if labels == nil {
		return nil
	}
	return &Service{Name: stringOrUnknown(labels["service_name"]), Namespace: stringOrUnknown(labels["service_namespace"])}
}

func stringOrUnknown(v *structpb.Value) string {
	if s, ok := v.GetKind().(*structpb.Value_StringValue); ok {
		return s.StringValue
	}
	return "unknown"
}
