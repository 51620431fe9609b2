package cluster

import (
	"context"

	"google.golang.org/grpc/balancer"

	"github.com/dynxds/dynxds/balancer/internal/leaf"
	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// LabelsOf returns the telemetry labels of all RPCs to a cluster (gRFC A89), which a pick sets
// whatever its result. The locality is that of the endpoint, once there is one (gRFC A78).
// c may be nil.
func LabelsOf(name string, c *xdsresource.Cluster) map[string]string {
	service := &xdsresource.Service{Name: "unknown", Namespace: "unknown"}
	if c != nil && c.Service != nil {
		service = c.Service
	}
	return map[string]string{
		"grpc.lb.backend_service":    name,
		"grpc.lb.locality":           "",
		"csm.service_name":           service.Name,
		"csm.service_namespace_name": service.Namespace,
	}
}

// setLabels sets the labels of an RPC after a pick, together with that of the endpoint that the pick has found,
// if it has.
func setLabels(ctx context.Context, labels map[string]string, sc *leaf.SubConn) {
	if !grpcbridge.TakesLabels(ctx) {
		return
	}
	var locality map[string]string
	if sc != nil {
		locality = sc.LocalityLabels()
	}
	grpcbridge.UpdateLabels(ctx, labels, locality)
}

// labelled is the picker of a cluster without endpoints. It sets the labels.
type labelled struct {
	balancer.Picker
	labels map[string]string
}

func (l labelled) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	grpcbridge.UpdateLabels(info.Ctx, l.labels)
	return l.Picker.Pick(info)
}
