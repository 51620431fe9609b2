package meshroute

import (
	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Service is a service of the mesh, which clients dial by its name. It must not be changed after
// Build.
type Service struct {
	// Name consists of letters, digits, and of "-", "_" and "." inside.
	Name string
	// Source is for faults and reports.
	Source Source
	// Endpoints are in the order of the assignment. Addresses are unique.
	Endpoints []Endpoint
	// Filters are the HTTP filters of the Listener, without the router, which is added.
	Filters []*hcmpb.HttpFilter
	// FiltersSource is the place of Filters. Zero: that of the service.
	FiltersSource Source
	// TLS secures the connections to the endpoints (Cluster.transport_socket). nil: what the
	// channels of the clients do by themselves.
	TLS *TLS
	// Cluster has settings of the Clusters of the service and its subsets: lb_policy and its configuration,
	// load_balancing_policy, outlier_detection, circuit_breakers and lrs_server. It must have no other
	// fields. nil: round robin.
	Cluster *clusterpb.Cluster
	// Route has settings of the routes to the service, wherever they lead: hash_policy, retry_policy and
	// max_stream_duration. It must have no other fields.
	Route *routepb.RouteAction
}

// Endpoint is one instance of a service.
type Endpoint struct {
	// Address is "host:port". If the host is a name, clients whose Implementation supports only
	// IP addresses do not get the endpoint.
	Address string
	// Hostname is for auto_host_rewrite and TLS. It may be empty.
	Hostname string
	Locality Locality
	// Priority is 0 for the endpoints that are used first. Gaps are closed in what is sent.
	Priority uint32
	// Weight is relative to the other endpoints. 0 counts as 1.
	Weight uint32
	Health Health
	// Tags select the subsets of the endpoint.
	Tags map[string]string
	// Source may be zero.
	Source Source
}

// Locality is the locality of an endpoint. The zero value is a locality too.
type Locality struct {
	Region, Zone, SubZone string
}

// Health is the health of an endpoint.
type Health int

// The states of health.
const (
	// Healthy endpoints get requests.
	Healthy Health = iota
	// Unhealthy endpoints get none.
	Unhealthy
	// Draining endpoints get no new ones.
	Draining
)

// settings are the fields that Cluster and Route may have.
var settings = map[protoreflect.FullName]bool{
	"envoy.config.cluster.v3.Cluster.lb_policy":               true,
	"envoy.config.cluster.v3.Cluster.ring_hash_lb_config":     true,
	"envoy.config.cluster.v3.Cluster.least_request_lb_config": true,
	"envoy.config.cluster.v3.Cluster.load_balancing_policy":   true,
	"envoy.config.cluster.v3.Cluster.outlier_detection":       true,
	"envoy.config.cluster.v3.Cluster.circuit_breakers":        true,
	"envoy.config.cluster.v3.Cluster.lrs_server":              true,
	"envoy.config.route.v3.RouteAction.hash_policy":           true,
	"envoy.config.route.v3.RouteAction.retry_policy":          true,
	"envoy.config.route.v3.RouteAction.max_stream_duration":   true,
}

// beyondSettings returns a field of Cluster or Route that is not a setting, or "".
func (s *Service) beyondSettings() (extra protoreflect.FullName) {
	find := func(field protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		if !settings[field.FullName()] {
			extra = field.FullName()
		}
		return extra == ""
	}
	s.Cluster.ProtoReflect().Range(find)
	s.Route.ProtoReflect().Range(find)
	return extra
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

// Denial denies some clients access to some services: instead of routes they get the error
// PERMISSION_DENIED.
type Denial struct {
	Source Source
	// Clients selects clients.
	Clients TargetRef
	// To is a service by name, or zero for all services.
	To TargetRef
	// Reason is part of the error. It may be empty.
	Reason string
}
