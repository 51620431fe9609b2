package cluster

import (
	"context"

	"github.com/dynxds/dynxds/balancer/internal/conns"
	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// Labels are the telemetry labels of all RPCs to a cluster. A pick sets them whatever its result (gRFC A89).
type Labels struct{ service, cluster map[string]string }

// LabelsOf returns the labels of RPCs to a cluster. c may be nil.
func LabelsOf(name string, c *xdsresource.Cluster) Labels {
	service := &xdsresource.Service{Name: "unknown", Namespace: "unknown"}
	if c != nil && c.Service != nil {
		service = c.Service
	}
	return Labels{
		service: map[string]string{"csm.service_name": service.Name, "csm.service_namespace_name": service.Namespace},
		cluster: map[string]string{"grpc.lb.backend_service": name, "grpc.lb.locality": ""},
	}
}

// Set gives an RPC its labels after a pick, and that of the locality of the endpoint that the pick has found (gRFC A78), if
// it has. It calls the RPC's callback twice, as gRPC's own xDS client does: what keeps the last call only has the cluster and
// the locality.
func (l Labels) Set(ctx context.Context, sc *conns.Conn) {
	if !grpcbridge.TakesLabels(ctx) {
		return
	}
	var locality map[string]string
	if sc != nil {
		locality = sc.LocalityLabels()
	}
	grpcbridge.UpdateLabels(ctx, l.service)
	grpcbridge.UpdateLabels(ctx, l.cluster, locality)
}
