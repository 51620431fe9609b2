package xdsresource

import (
	"time"

	"github.com/dynxds/dynxds/httpfilter"
)

// Listener is what gRPC needs of a Listener with an API listener. Exactly one
// of RouteConfigName and RouteConfig is set.
type Listener struct {
	Name string
	// RouteConfigName is the RouteConfiguration to ask for by RDS.
	RouteConfigName string
	// RouteConfig is the RouteConfiguration given inline.
	RouteConfig *RouteConfiguration
	// MaxStreamDuration bounds RPCs whose route does not say otherwise
	// (HttpConnectionManager.common_http_protocol_options). 0: no bound.
	MaxStreamDuration time.Duration
	// Filters is the chain of HTTP filters; the last one is terminal.
	Filters []httpfilter.Instance
	// Ignored lists what was left out of the Listener and of RouteConfig, such
	// as optional filters of unknown types. At most 100 entries.
	Ignored []Ignored
}

// Cluster is a validated Cluster of type EDS.
type Cluster struct {
	Name string
	// EDSServiceName is the ClusterLoadAssignment to ask for: the service
	// name of the EDS config, or the cluster's own name if that is empty.
	EDSServiceName string
	// LBPolicy is the name of the gRPC policy that picks among the endpoints
	// of a locality, "round_robin".
	LBPolicy string
	// AcrossLocalities says that LBPolicy picks among all endpoints of a
	// priority and locality weights mean nothing. It is set when
	// load_balancing_policy names the policy outside of a WrrLocality
	// (gRFC A52).
	AcrossLocalities bool
}

// Endpoints is a validated ClusterLoadAssignment.
type Endpoints struct {
	// Name is the cluster_name of the resource.
	Name string
	// Localities holds every locality with a weight above 0 and at least one
	// endpoint, in the order of the resource.
	Localities []Locality
}

// LocalityID identifies a locality.
type LocalityID struct{ Region, Zone, SubZone string }

// Locality is a group of endpoints in one place.
type Locality struct {
	ID LocalityID
	// Priority is 0 for the most preferred localities. The priorities of a
	// resource have no gaps: where one has no endpoint at all, the less
	// preferred ones move up.
	Priority uint32
	// Weight is at least 1. The weights of one priority fit 32 bits together.
	Weight    uint32
	Endpoints []Endpoint
}

// HealthStatus is the health of an endpoint as the control plane sees it.
type HealthStatus int

// The health statuses, numbered as envoy.config.core.v3.HealthStatus.
const (
	HealthUnknown HealthStatus = iota
	HealthHealthy
	HealthUnhealthy
	HealthDraining
	HealthTimeout
	HealthDegraded
)

// Usable reports whether an endpoint of this health gets RPCs: HEALTHY and
// UNKNOWN do (gRFC A27).
func (h HealthStatus) Usable() bool { return h == HealthUnknown || h == HealthHealthy }

// Endpoint is one backend.
type Endpoint struct {
	// Address is "host:port", IPv6 in brackets.
	Address string
	// Hostname is the authority for RPCs whose route has AutoHost set (gRFC
	// A81). It may be empty.
	Hostname string
	// Weight is at least 1.
	Weight uint32
	Health HealthStatus
}
