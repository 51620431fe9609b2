package xdsresource

import (
	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/xdsclient"
)

// HealthCheck says that the endpoints of a cluster are asked for their health, by Watch of gRPC's
// health service (gRFC A17).
type HealthCheck struct {
	// Service is the name of the service in the request. Empty: the server as a whole.
	Service string
}

// healthCheck decodes the first grpc_health_check of health_checks. Envoy takes one entry at most.
func (d clusterDecoder) healthCheck(pb *clusterpb.Cluster) (found *HealthCheck) {
	for i, check := range pb.GetHealthChecks() {
		byGRPC := check.GetGrpcHealthCheck()
		switch {
		case byGRPC == nil: // IgnoredFields reports it.
		case found != nil:
			d.ignored.add(faults.Item("health_checks", i), xdsclient.SeverityInfo, "", "there is another grpc_health_check before it, which is used")
		default:
			found = &HealthCheck{Service: byGRPC.GetServiceName()}
		}
	}
	return found
}
