package meshroute

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The types of resources that a Mesh has.
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

// naming makes the names of resources: plain ones, or, with an authority, those of
// xRFC TP1.
type naming struct{ authority string }

// resource returns the name of the resource of a type, given by its name.
func (n naming) resource(typeName, id string) string {
	if n.authority == "" {
		return id
	}
	return "xdstp://" + n.authority + "/" + typeName + "/" + escape(id)
}

// subset is a service, or those of its endpoints that have the tags. Its id is
// "backend", or "backend;version=v1;zone=a".
type subset struct {
	id, service string
	tags        map[string]string
}

func newSubset(service string, tags map[string]string) subset {
	var id strings.Builder
	id.WriteString(service)
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		id.WriteString(";" + key + "=" + tags[key])
	}
	return subset{id.String(), service, tags}
}

func (r *BackendRef) subset() subset { return newSubset(r.Name, r.Tags) }

// escape writes what may not stand in the last part of a path as %XX. Of what names
// and tags are made of that is only the slash.
func escape(id string) string {
	var b strings.Builder
	for i := range len(id) {
		switch c := id[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("-._~;=", c) >= 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
