package xdsresource

import (
	"slices"
	"time"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/xdsclient"
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
	Ignored []xdsclient.Ignored
}

// ClusterKind says where the endpoints of a cluster come from.
type ClusterKind int

const (
	// ClusterEDS: from the ClusterLoadAssignment EDSServiceName.
	ClusterEDS ClusterKind = iota
	// ClusterStatic: they are Inline.
	ClusterStatic
	// ClusterStrictDNS: from DNS, each address of the names in Inline being an
	// endpoint.
	ClusterStrictDNS
	// ClusterLogicalDNS: from DNS, all addresses of the one name in Inline being
	// one endpoint (gRFC A37, A61).
	ClusterLogicalDNS
	// ClusterAggregate: it has none, but the clusters Underlying (gRFC A37).
	ClusterAggregate
)

var clusterTypes = [...]string{"EDS", "STATIC", "STRICT_DNS", "LOGICAL_DNS", "aggregate"}

// String returns the name that the type has in a Cluster.
func (k ClusterKind) String() string { return clusterTypes[k] }

// DNS reports whether the endpoints come from DNS.
func (k ClusterKind) DNS() bool { return k == ClusterStrictDNS || k == ClusterLogicalDNS }

// Cluster is a validated Cluster. Those of type ClusterAggregate have a Name,
// Underlying, and perhaps a TransportSocket: everything else is up to the clusters
// underlying (gRFC A75).
type Cluster struct {
	Name string
	Kind ClusterKind
	// EDSServiceName is the ClusterLoadAssignment to ask for, in a cluster of
	// type ClusterEDS: the service name of the EDS config, or the cluster's own
	// name if that is empty.
	EDSServiceName string
	// Inline is load_assignment, in clusters of types ClusterStatic and those of
	// DNS. In the latter, the addresses are those to resolve, as "host:port", and
	// a locality of Weight 0 weighs as much as its endpoints together.
	Inline *Endpoints
	// AddressFamily says which of the addresses in DNS are used.
	AddressFamily AddressFamily
	// RefreshRate is how often the names of a cluster of type ClusterStrictDNS
	// are looked up again without another reason. 0 in other types: never.
	RefreshRate time.Duration
	// Underlying names the clusters of one of type ClusterAggregate, the most
	// preferred first. There is at least one.
	Underlying []string
	// TransportSocket is the security that connections to the endpoints are to have.
	// nil: the Cluster asks for none. Channels whose credentials do not leave security
	// to the control plane ignore it (gRFC A29).
	TransportSocket *TransportSocket
	// LBPolicy is the name of the policy that picks among endpoints:
	// PolicyRingHash, PolicyRandom, or one that is registered with gRPC.
	LBPolicy string
	// LBConfig is that policy's configuration in JSON, which it has accepted.
	// Empty: it has none.
	LBConfig string
	// AcrossLocalities says that LBPolicy picks among all endpoints of a
	// priority and locality weights mean nothing. It is set when
	// load_balancing_policy names the policy outside of a WrrLocality
	// (gRFC A52).
	AcrossLocalities bool
	// MaxRequests is how many RPCs the process may have on their way to the
	// cluster at once (gRFC A32). DefaultMaxRequests, if the resource does not
	// say.
	MaxRequests uint32
	// Outliers says when endpoints that fail RPCs are left out. nil: never.
	Outliers *OutlierDetection
	// Sessions says which endpoints keep the RPCs of a session.
	Sessions Sessions
	// Load says how the cluster's load is reported. nil: not at all.
	Load *LoadReporting
	// Ignored lists the entries of load_balancing_policy that were passed over
	// because this client has no policy of their type. At most 100 entries.
	Ignored []xdsclient.Ignored
}

// DefaultMaxRequests is Envoy's and gRPC's limit of RPCs on their way (gRFC
// A32).
const DefaultMaxRequests = 1024

// Endpoints is a validated ClusterLoadAssignment.
type Endpoints struct {
	// Name is the cluster_name of the resource.
	Name string
	// Localities holds every locality with a weight above 0 and at least one
	// endpoint, in the order of the resource.
	Localities []Locality
	// Drops are the shares of RPCs to fail, each of what those before it leave.
	Drops []Drop
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
	// Additional are further addresses of the same backend, in order of
	// preference after Address (gRFC A61).
	Additional []string
	// HashKey takes the place of Address on the ring of PolicyRingHash (gRFC
	// A76). Empty: none.
	HashKey string
	// Weight is at least 1.
	Weight uint32
	Health HealthStatus
}

// Equal reports whether e and o are the same in everything.
func (e Endpoint) Equal(o Endpoint) bool {
	return e.Address == o.Address && e.Hostname == o.Hostname && e.HashKey == o.HashKey && e.Weight == o.Weight && e.Health == o.Health &&
		slices.Equal(e.Additional, o.Additional)
}
