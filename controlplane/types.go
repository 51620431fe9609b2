package controlplane

import "github.com/dynxds/dynxds/xdsclient/dynparam"

// Type URLs that the xDS protocol treats by rules of their own.
const (
	clusterType  = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	endpointType = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	listenerType = "type.googleapis.com/envoy.config.listener.v3.Listener"
	routeType    = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
)

// wildcardName subscribes to every resource of a type.
const wildcardName = "*"

// hasWildcard says whether clients may subscribe to all resources of the type
// at once (Envoy, xDS protocol, "How the client specifies what resources to
// return"). They are the types whose SotW responses are complete, too.
func hasWildcard(typeURL string) bool {
	return typeURL == listenerType || typeURL == clusterType
}

// pushRank orders the types within one push, make before break. What decides
// which variants a client asks for comes first of all.
func pushRank(typeURL string) int {
	switch typeURL {
	case dynparam.MapTypeURL:
		return -1
	case clusterType:
		return 0
	case endpointType:
		return 1
	case listenerType:
		return 2
	case routeType:
		return 3
	default:
		return 4
	}
}
