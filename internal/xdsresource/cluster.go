package xdsresource

import (
	"cmp"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	aggregatepb "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	dnspb "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dns/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/xdsclient"
)

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
	// ClusterPlugin: it has none, but LBPolicy chooses another cluster for each RPC. It is made by a
	// RouteConfiguration, see Plugins, and never by a Cluster.
	ClusterPlugin
)

var clusterTypes = [...]string{"EDS", "STATIC", "STRICT_DNS", "LOGICAL_DNS", "aggregate", "plugin"}

// String returns the name that the type has in a Cluster.
func (k ClusterKind) String() string { return clusterTypes[k] }

// DNS reports whether the endpoints come from DNS.
func (k ClusterKind) DNS() bool { return k == ClusterStrictDNS || k == ClusterLogicalDNS }

// Cluster is a validated Cluster. One of type ClusterAggregate has only a Name, Metadata and Underlying:
// everything else is taken from the underlying clusters (gRFC A75).
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
	// AddressFamily says which of the addresses that DNS returns are used.
	AddressFamily AddressFamily
	// RefreshRate is the interval at which the names of a cluster of type
	// ClusterStrictDNS are resolved again. It is 0 in other types.
	RefreshRate time.Duration
	// Underlying names the clusters of one of type ClusterAggregate, the most
	// preferred first. There is at least one.
	Underlying []string
	// Security says how connections to the endpoints are secured. nil: the Cluster does not
	// ask for security.
	Security *Security
	// LBPolicy is the name of the policy that picks among endpoints:
	// PolicyRingHash, PolicyMaglev, PolicyRandom, PolicySlowStart, or one that is registered with
	// gRPC.
	LBPolicy string
	// LBConfig is that policy's configuration in JSON, which it has accepted.
	// Empty: it has none.
	LBConfig string
	// AcrossLocalities says that LBPolicy picks among all endpoints of a
	// priority and locality weights mean nothing. It is set when
	// load_balancing_policy names the policy outside of a WrrLocality
	// (gRFC A52).
	AcrossLocalities bool
	// HTTPConnect says that connections to endpoints with a Proxy go through it (gRFC A86).
	HTTPConnect bool
	// Subsets says how many of the endpoints LBPolicy gets.
	Subsets Subsets
	Limits
	// Outliers says when endpoints that fail RPCs are ejected. nil: never.
	Outliers *OutlierDetection
	// HealthCheck says how the endpoints are asked for their health. nil: not at all.
	HealthCheck *HealthCheck
	// Sessions says which endpoints keep the RPCs of a session.
	Sessions Sessions
	// Load says how the cluster's load is reported. nil: not at all.
	Load *LoadReporting
	// Service names the service for telemetry. nil: the Cluster does not.
	Service *Service
	// Metadata is what HTTP filters know of the Cluster's metadata.
	Metadata httpfilter.Metadata
	// Ignored lists fields that the client does not act on, and the entries of load_balancing_policy that were skipped because
	// this client has no policy of their type. See IgnoredFields.
	Ignored []xdsclient.Ignored
}

// Limits are the circuit breakers of a Cluster.
type Limits struct {
	// MaxRequests bounds the concurrent RPCs of the process to the cluster (gRFC
	// A32). Default: DefaultMaxRequests.
	MaxRequests uint32
	// Retries bounds the concurrent retries of the process to the cluster. nil: nothing does.
	Retries *RetryLimit
}

// DefaultMaxRequests is Envoy's and gRPC's default limit of concurrent RPCs to a cluster
// (gRFC A32).
const DefaultMaxRequests = 1024

func readCluster(v *validator, raw []byte) *Cluster {
	pb := new(clusterpb.Cluster)
	if !v.readNamed(raw, pb, "name", pb.GetName) {
		return nil
	}
	c := &Cluster{Name: pb.GetName()}
	d := clusterDecoder{v, c}
	c.Metadata = d.filterMetadata(pb.GetMetadata())
	security, httpConnect := d.transportSocket(pb)
	if d.clusterType(pb); c.Kind != ClusterAggregate {
		c.Security, c.HTTPConnect = security, httpConnect
		c.Limits = d.circuitBreakers(pb)
		d.lbPolicy(pb)
		c.Outliers = d.outlierDetection(faults.Field("outlier_detection"), pb.GetOutlierDetection())
		c.HealthCheck = d.healthCheck(pb)
		c.Sessions = d.sessions(pb)
		c.Load = d.loadReporting(pb)
		c.Service = serviceOf(pb)
	}
	return c
}

// Secured reports whether connections to the endpoints are secured, for the cache on disk.
func (c *Cluster) Secured() bool { return c.Security != nil }

// clusterDecoder decodes a Cluster into its value.
type clusterDecoder struct {
	*validator
	c *Cluster
}

const knownTypes = "this client knows EDS, STATIC, STRICT_DNS and LOGICAL_DNS, and aggregate and DNS clusters"

const (
	aggregateTypeURL = "type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig"
	dnsTypeURL       = "type.googleapis.com/envoy.extensions.clusters.dns.v3.DnsCluster"
)

// clusterType decodes the type of a cluster and what goes with it.
func (d clusterDecoder) clusterType(pb *clusterpb.Cluster) {
	at := faults.Field("type")
	switch kind := pb.GetClusterDiscoveryType().(type) {
	case *clusterpb.Cluster_Type:
		switch kind.Type {
		case clusterpb.Cluster_EDS:
			d.c.EDSServiceName = d.edsServiceName(pb)
		case clusterpb.Cluster_STATIC:
			d.c.Kind = ClusterStatic
			d.inline(pb)
		case clusterpb.Cluster_STRICT_DNS:
			//lint:ignore SA1019 control planes still send it
			d.dns(ClusterStrictDNS, pb, nil, pb.GetDnsLookupFamily(), pb.GetDnsRefreshRate())
		case clusterpb.Cluster_LOGICAL_DNS:
			d.dns(ClusterLogicalDNS, pb, nil, pb.GetDnsLookupFamily(), nil)
		default:
			d.fault(at, "unknown cluster type %v; %s", kind.Type, knownTypes)
		}
	case *clusterpb.Cluster_ClusterType:
		at := faults.Field("cluster_type")
		switch url := kind.ClusterType.GetTypedConfig().GetTypeUrl(); url {
		case aggregateTypeURL:
			d.aggregate(at.Field("typed_config"), kind.ClusterType.GetTypedConfig())
		case dnsTypeURL:
			d.dnsCluster(at.Field("typed_config"), kind.ClusterType.GetTypedConfig(), pb)
		default:
			d.fault(at, "unknown cluster type %s (%s); %s", faults.Quote(kind.ClusterType.GetName()), faults.Quote(url), knownTypes)
		}
	default:
		d.fault(at, "the cluster type is not set; %s", knownTypes)
	}
}

func (d clusterDecoder) aggregate(at *faults.Path, packed *anypb.Any) {
	d.c.Kind = ClusterAggregate
	config := new(aggregatepb.ClusterConfig)
	if !d.unmarshal(at, packed, aggregateTypeURL, config) {
		return
	}
	d.c.Underlying = config.GetClusters()
	if len(d.c.Underlying) == 0 {
		d.fault(at.Field("clusters"), "must have at least one entry")
	}
	for i, name := range d.c.Underlying {
		d.clusterName(at.Item("clusters", i), name)
	}
}

// dnsCluster decodes a cluster of type envoy.clusters.dns, which is a cluster of type STRICT_DNS or LOGICAL_DNS.
func (d clusterDecoder) dnsCluster(at *faults.Path, packed *anypb.Any, pb *clusterpb.Cluster) {
	config := new(dnspb.DnsCluster)
	if !d.unmarshal(at, packed, dnsTypeURL, config) {
		return
	}
	kind := ClusterStrictDNS
	if config.GetAllAddressesInSingleEndpoint() {
		kind = ClusterLogicalDNS
	}
	d.dns(kind, pb, at, config.GetDnsLookupFamily(), config.GetDnsRefreshRate())
}

func (d clusterDecoder) edsServiceName(pb *clusterpb.Cluster) string {
	at := faults.Field("eds_cluster_config")
	d.adsOrSelf(at.Field("eds_config"), pb.GetEdsClusterConfig().GetEdsConfig())
	if name := pb.GetEdsClusterConfig().GetServiceName(); name != "" {
		return name
	}
	// The name of the Cluster could not be that of another resource, since an
	// xdstp name has the resource type in it (gRFC A47).
	if strings.HasPrefix(pb.GetName(), "xdstp:") {
		d.fault(at.Field("service_name"), "must not be empty in a cluster whose name starts with xdstp:")
	}
	return pb.GetName()
}

// inline decodes load_assignment. Unlike in an EDS resource, its localities need no weights, since
// Envoy, for which it is written, does not require them.
func (d clusterDecoder) inline(pb *clusterpb.Cluster) {
	c := d.c
	at, assignment := faults.Field("load_assignment"), pb.GetLoadAssignment()
	switch {
	case assignment == nil && c.Kind == ClusterStatic:
		// A cluster without endpoints, such as Istio's BlackHoleCluster: RPCs to it fail.
		c.Inline = &Endpoints{}
	case assignment == nil:
		d.fault(at, "must be set in a cluster of type %v", c.Kind)
		return
	case c.Kind == ClusterLogicalDNS:
		c.Inline = d.logicalDNS(at, assignment)
	default:
		d.noted = true
		c.Inline = assignmentOf(d.validator, at, assignment, c.Kind, marshal(assignment))
		d.noted = false
	}
	c.Inline.Name = c.Name
}

// AddressFamily says which of the addresses of a name are used
// (Cluster.dns_lookup_family).
type AddressFamily int

const (
	// FamilyAny: all (AUTO, ALL). Envoy's AUTO does not use IPv4 if there is IPv6;
	// gRPC uses both, so that a name works even if only one of the two is routed.
	FamilyAny AddressFamily = iota
	// FamilyV4: IPv4 only.
	FamilyV4
	// FamilyV6: IPv6 only.
	FamilyV6
	// FamilyV4Preferred: IPv4 if there is any, else IPv6.
	FamilyV4Preferred
)

// choose returns the addresses, each "ip:port", that the family allows.
func (f AddressFamily) choose(addresses []string) []string {
	if f == FamilyAny {
		return addresses
	}
	var v4, v6 []string
	for _, a := range addresses {
		if addr, err := netip.ParseAddrPort(a); err != nil || addr.Addr().Unmap().Is4() {
			v4 = append(v4, a)
		} else {
			v6 = append(v6, a)
		}
	}
	if f == FamilyV6 || f == FamilyV4Preferred && len(v4) == 0 {
		return v6
	}
	return v4
}

// DNSNames returns the names, as "host:port", that DNS has to resolve for a
// cluster of type ClusterStrictDNS or ClusterLogicalDNS, in the order of the
// resource.
func (c *Cluster) DNSNames() []string {
	var names []string
	for i := range c.Inline.Localities {
		for j := range c.Inline.Localities[i].Endpoints {
			names = append(names, c.Inline.Localities[i].Endpoints[j].Address)
		}
	}
	return names
}

// Resolved returns the endpoints of a cluster of type ClusterStrictDNS or
// ClusterLogicalDNS. addresses returns those of a name, as "ip:port". If several names
// have the same address, the first one gets it. additional_addresses, which are not
// names, are not used.
//
// Each address of a STRICT_DNS cluster is an endpoint with the weight, health,
// and hostname of the name's; without hostname, it has the name.
func (c *Cluster) Resolved(addresses func(name string) []string) *Endpoints {
	resolved := &Endpoints{Name: c.Inline.Name, Drops: c.Inline.Drops}
	taken := make(map[string]bool)
	for _, l := range c.Inline.Localities {
		var endpoints []Endpoint
		for _, e := range l.Endpoints {
			var fresh []string
			for _, a := range c.AddressFamily.choose(addresses(e.Address)) {
				if !taken[a] {
					taken[a] = true
					fresh = append(fresh, a)
				}
			}
			endpoints = append(endpoints, c.endpointsOf(e, fresh)...)
		}
		if len(endpoints) > 0 {
			l.Endpoints = endpoints
			resolved.Localities = append(resolved.Localities, l)
		}
	}
	fitWeights(resolved.Localities)
	closeGaps(resolved.Localities)
	return resolved
}

// endpointsOf returns the endpoints of a name that resolves to the given addresses.
func (c *Cluster) endpointsOf(name Endpoint, addresses []string) []Endpoint {
	if len(addresses) == 0 {
		return nil
	}
	e := name
	e.Additional = nil
	if c.Kind == ClusterLogicalDNS {
		e.Address = addresses[0]
		e.Additional = slices.Clone(addresses[1:])
		return []Endpoint{e}
	}
	if e.Hostname == "" {
		e.Hostname, _, _ = net.SplitHostPort(name.Address)
	}
	endpoints := make([]Endpoint, len(addresses))
	for i, a := range addresses {
		e.Address = a
		endpoints[i] = e
	}
	return endpoints
}

// fitWeights makes the weights of the endpoints of each locality, and those of
// all localities together, fit 32 bits: how many addresses a name has is not
// known when a Cluster is validated.
func fitWeights(localities []Locality) {
	weights := make([]uint64, len(localities))
	var all uint64
	for i := range localities {
		weights[i] = cmp.Or(uint64(localities[i].Weight), weightByEndpoints(localities[i].Endpoints))
		all += weights[i]
		total := totalWeight(localities[i].Endpoints)
		for j := range localities[i].Endpoints {
			e := &localities[i].Endpoints[j]
			e.Weight = scaled(uint64(e.Weight), total, len(localities[i].Endpoints))
		}
	}
	for i := range localities {
		localities[i].Weight = scaled(weights[i], all, len(localities))
	}
}

// scaled returns weight, one of n weights that add up to total, scaled down if total does
// not fit 32 bits. It is at least 1.
func scaled(weight, total uint64, n int) uint32 {
	if total <= math.MaxUint32 {
		return uint32(weight)
	}
	return uint32(max(1, float64(weight)*(math.MaxUint32-float64(n))/float64(total)))
}

// logicalDNS decodes the load_assignment of a cluster of type LOGICAL_DNS. Its
// locality has no name, its endpoint the name that is resolved as hostname
// (gRFC A37, "Validation" and "xds_cluster_resolver_experimental LB Policy"; gRFC
// A81, "xDS Resource Validation").
func (d clusterDecoder) logicalDNS(at *faults.Path, pb *endpointpb.ClusterLoadAssignment) *Endpoints {
	e := &Endpoints{Drops: d.drops(at.Field("policy"), pb.GetPolicy().GetDropOverloads())}
	if n := len(pb.GetEndpoints()); n != 1 {
		d.fault(at.Field("endpoints"), "must have exactly one entry in a cluster of type LOGICAL_DNS, has %d", n)
		return e
	}
	at = at.Item("endpoints", 0)
	endpoints := pb.GetEndpoints()[0].GetLbEndpoints()
	if n := len(endpoints); n != 1 {
		d.fault(at.Field("lb_endpoints"), "must have exactly one entry in a cluster of type LOGICAL_DNS, has %d", n)
		return e
	}
	l := endpointDecoder{validator: d.validator, kind: ClusterLogicalDNS, addresses: make(map[string]position)}
	endpoint := l.endpoint(at.Item("lb_endpoints", 0), position{}, endpoints[0], l.proxy(at, pb.GetEndpoints()[0]))
	if endpoint.Health != HealthUnknown && endpoint.Health != HealthHealthy {
		d.warn(at.Item("lb_endpoints", 0).Field("health_status"), "does not count: a gRPC client takes only the host and port of a cluster of type LOGICAL_DNS")
	}
	endpoint.Hostname, endpoint.Weight, endpoint.Health = endpoint.Address, 1, HealthUnknown
	e.Localities = []Locality{{Weight: 1, Endpoints: []Endpoint{endpoint}}}
	return e
}

// defaultRefreshRate is that of Envoy (Cluster.dns_refresh_rate).
const defaultRefreshRate = 5 * time.Second

// dns decodes a cluster whose endpoints come from DNS. How names are resolved is said by fields of the message at a path. rate may be nil.
func (d clusterDecoder) dns(kind ClusterKind, pb *clusterpb.Cluster, at *faults.Path, family fmt.Stringer, rate *durationpb.Duration) {
	c := d.c
	c.Kind = kind
	d.inline(pb)
	switch family.String() {
	case "UNSPECIFIED", "AUTO", "ALL":
		c.AddressFamily = FamilyAny
	case "V4_ONLY":
		c.AddressFamily = FamilyV4
	case "V6_ONLY":
		c.AddressFamily = FamilyV6
	case "V4_PREFERRED":
		c.AddressFamily = FamilyV4Preferred
	default:
		d.fault(at.Field("dns_lookup_family"), "unknown family %v; this client knows AUTO, ALL, V4_ONLY, V6_ONLY and V4_PREFERRED", family)
	}
	if kind != ClusterStrictDNS {
		return
	}
	c.RefreshRate = defaultRefreshRate
	if rate != nil {
		at := at.Field("dns_refresh_rate")
		before := d.faults.Total()
		c.RefreshRate = d.duration(at, rate)
		if c.RefreshRate <= time.Millisecond && d.faults.Total() == before {
			d.fault(at, "must be more than 1ms, is %v", c.RefreshRate)
		}
	}
}

// maxClusterDepth bounds the path from an aggregate cluster to one with endpoints, both
// included (gRFC A37: "The tree of aggregate clusters has a depth limit of 16").
const maxClusterDepth = 16

// UnderlyingWalk visits the clusters under an aggregate cluster depth-first, each once (gRFC
// A37). Its cost is linear in the edges of the graph, however many paths there are.
type UnderlyingWalk struct {
	// Under returns the clusters under a cluster. Empty: the cluster has endpoints of its own,
	// or is not known.
	Under func(name string) []string
	// Context stands behind the path in an error.
	Context string
	// Leaves are those without clusters under them, in order of preference.
	Leaves []string

	path    []string       // from the aggregate cluster to the one being visited
	heights map[string]int // of the clusters visited: the number of clusters on the longest path down from each
}

// Visit visits a cluster and those below it. After an error the walk cannot be used.
func (w *UnderlyingWalk) Visit(name string) error {
	height, visited := w.heights[name]
	switch {
	case slices.Contains(w.path, name):
		return w.errorAt(name, "leads back to cluster "+bounds.Quote(name), "take that out of the clusters of %s")
	case len(w.path)+max(height, 1) > maxClusterDepth:
		return w.errorAt(name, fmt.Sprintf("has more than %d clusters below each other", maxClusterDepth), "have %s name clusters with endpoints")
	case visited:
		return nil
	}
	if w.heights == nil {
		w.heights = make(map[string]int)
	}
	w.path = append(w.path, name)
	w.heights[name] = 0
	under := w.Under(name)
	for _, below := range under {
		if err := w.Visit(below); err != nil {
			return err
		}
		height = max(height, w.heights[below])
	}
	if len(under) == 0 {
		w.Leaves = append(w.Leaves, name)
	}
	w.heights[name] = height + 1
	w.path = w.path[:len(w.path)-1]
	return nil
}

// errorAt returns an error of the way from the start of path to the cluster last: what is wrong, and what to do about it.
func (w *UnderlyingWalk) errorAt(last, what, remedy string) error {
	var quoted []string
	for _, name := range w.path {
		quoted = append(quoted, bounds.Quote(name))
	}
	remedy = fmt.Sprintf(remedy, quoted[len(quoted)-1])
	way := strings.Join(append(quoted, bounds.Quote(last)), " → ")
	return fmt.Errorf("aggregate cluster %s %s: %s%s; %s", quoted[0], what, way, w.Context, remedy)
}
