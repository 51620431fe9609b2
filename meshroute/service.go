package meshroute

import (
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
)

// Service is a service of the mesh, which clients dial by its name. It must not be changed
// after it was given to Build.
type Service struct {
	// Name consists of letters, digits, and of "-", "_" and "." inside.
	Name string
	// Source is for faults and reports.
	Source Source
	// Endpoints are in the order in which clients are to get them. Addresses
	// differ.
	Endpoints []Endpoint
	// Filters are the HTTP filters of the Listener, before the router, which is
	// added.
	Filters []*hcmpb.HttpFilter
}

// Endpoint is one instance of a service.
type Endpoint struct {
	// Address is "host:port". Clients whose Implementation takes IP addresses only are
	// not given an endpoint whose host is a name.
	Address string
	// Hostname is what auto_host_rewrite and TLS may use. It may be empty.
	Hostname string
	Locality Locality
	// Priority is 0 for the endpoints that are used first. Priorities have no
	// gaps: what is sent to clients is renumbered.
	Priority uint32
	// Weight is relative to the other endpoints. 0 counts as 1.
	Weight uint32
	Health Health
	// Tags decide which subsets the endpoint is in.
	Tags map[string]string
}

// Locality is where an endpoint is. The zero value is a locality of its own.
type Locality struct {
	Region, Zone, SubZone string
}

// Health is what clients are told of an endpoint's health.
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

// has reports whether an endpoint is in the subset with the tags.
func (e *Endpoint) has(tags map[string]string) bool {
	for key, value := range tags {
		if v, ok := e.Tags[key]; !ok || v != value {
			return false
		}
	}
	return true
}

// Denial keeps some clients away from some services: to them the routes of these
// services are an error, PERMISSION_DENIED.
type Denial struct {
	Source Source
	// Clients selects clients.
	Clients TargetRef
	// To is a service by its name, or zero for all services.
	To TargetRef
	// Reason is what clients are told. It may be empty.
	Reason string
}
