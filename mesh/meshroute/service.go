package meshroute

import (
	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
)

// Service is a service of the mesh, which clients dial by its name. It must not be changed after
// Build.
type Service struct {
	// Name consists of letters, digits, and of "-", "_" and "." inside. ":" and a port may follow.
	Name string
	// Aliases are further names under which clients dial the service.
	Aliases []Alias
	// Source is for errors and reports.
	Source Source
	// Endpoints are in the order of the assignment. Addresses are unique.
	Endpoints []Endpoint
	// ExternalName is host:port in place of Endpoints: clients resolve the host by DNS (Cluster.LOGICAL_DNS).
	ExternalName string
	// Filters are the HTTP filters of the Listener, without the router, which is added.
	Filters []*hcmpb.HttpFilter
	// FiltersSource is the place of Filters. Zero: that of the service.
	FiltersSource Source
	// TLS secures the connections to the endpoints (Cluster.transport_socket). nil: what the
	// channels of the clients do by themselves.
	TLS *TLS
	// LocalityWeights are the weights of localities, from 1. One that is not there has the sum of the weights of
	// its endpoints that get RPCs: those that are HEALTHY or UNKNOWN. Without any, clients are not told the localities of endpoints
	// that ring hash or Maglev picks from.
	LocalityWeights map[Locality]uint32
	// Cluster has settings of the Clusters of the service and its subsets: lb_policy and its configuration,
	// load_balancing_policy, common_lb_config, outlier_detection, circuit_breakers, health_checks and
	// lrs_server. It must have no other fields. nil: round robin.
	Cluster *clusterpb.Cluster
	// Route has settings of the routes to the service, wherever they lead: hash_policy, retry_policy and
	// max_stream_duration. It must have no other fields.
	Route *routepb.RouteAction
}

// Alias is a name of a service beside its own.
type Alias struct {
	Name string
	// Namespace is the value of the tag "namespace" of the clients that the alias is for; empty: it is for all.
	Namespace string
}

// Endpoint is one instance of a service.
type Endpoint struct {
	// Address is "host:port". If the host is a name, clients whose Implementation supports only
	// IP addresses do not get the endpoint.
	Address string
	// AdditionalAddresses are other addresses of the instance, "ip:port", such as that of another IP family (gRFC A61).
	AdditionalAddresses []string
	// Hostname is for auto_host_rewrite and TLS. It may be empty.
	Hostname string
	Locality Locality
	// Priority is 0 for the endpoints that are used first. Gaps are closed in what is sent.
	Priority uint32
	// Weight is relative to the other endpoints. 0 counts as 1.
	Weight uint32
	// Health is HEALTHY if it is UNKNOWN, the zero value. gRPC sends requests to HEALTHY endpoints only.
	Health corepb.HealthStatus
	// Tags select the subsets of the endpoint.
	Tags map[string]string
	// ForZones and ForNodes have the values of the tags "zone" and "node" of the clients that prefer the endpoint to those
	// that are not for them: these have a lower priority for such clients. Services with endpoints that have host names
	// ignore them, and so do those with so many nodes that the variants would be too large.
	ForZones, ForNodes []string
	// Source may be zero.
	Source Source
}

// Locality is the locality of an endpoint. The zero value is a locality too.
type Locality struct {
	Region, Zone, SubZone string
}

// has reports whether an endpoint is in the subset with the tags.
func (e *Endpoint) has(tags map[string]string) bool {
	for key, value := range tags {
		if v, ok := e.Tags[key]; !ok || v != value {
			return false
		}
	}
	return true
}
