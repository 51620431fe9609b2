package meshroute

import "github.com/dynxds/dynxds/internal/xdsname"

// The types of a Mesh's resources.
const (
	ListenerType           = "type.googleapis.com/" + listenerName
	RouteConfigurationType = "type.googleapis.com/" + routeConfigurationName
	ClusterType            = "type.googleapis.com/" + clusterName
	EndpointsType          = "type.googleapis.com/" + endpointsName
)

const (
	listenerName           = "envoy.config.listener.v3.Listener"
	routeConfigurationName = "envoy.config.route.v3.RouteConfiguration"
	clusterName            = "envoy.config.cluster.v3.Cluster"
	endpointsName          = "envoy.config.endpoint.v3.ClusterLoadAssignment"
)

// naming makes the names of resources: plain ones or, with an authority, those of xRFC TP1.
type naming struct{ authority string }

// resource returns the name of a resource of a type.
func (n naming) resource(typeName, id string) string {
	if n.authority == "" {
		return id
	}
	return xdsname.New(n.authority, typeName, id)
}
