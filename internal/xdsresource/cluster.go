package xdsresource

import (
	"strings"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	aggregatepb "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	dnspb "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dns/v3"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/httpfilter"
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
	Resolution
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

// Resolution says how the names of a cluster are resolved whose endpoints come from DNS.
type Resolution struct {
	// AddressFamily says which of the addresses that DNS returns are used.
	AddressFamily AddressFamily
	// RefreshRate is the interval at which the names of a cluster of type
	// ClusterStrictDNS are resolved again. It is 0 in other types.
	RefreshRate time.Duration
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
	c := clusterDecoder{v}.cluster(pb)
	c.Ignored = v.ignored.list()
	return c
}

// Secured reports whether connections to the endpoints are secured, for the cache on disk.
func (c *Cluster) Secured() bool { return c.Security != nil }

// clusterDecoder decodes a Cluster.
type clusterDecoder struct{ *validator }

func (d clusterDecoder) cluster(pb *clusterpb.Cluster) *Cluster {
	c := &Cluster{Name: pb.GetName(), Metadata: d.filterMetadata(pb.GetMetadata())}
	security, httpConnect := d.transportSocket(pb)
	if d.clusterType(pb, c); c.Kind == ClusterAggregate {
		return c
	}
	c.Security, c.HTTPConnect = security, httpConnect
	d.circuitBreakers(pb, c)
	policyDecoder{d.validator, c}.cluster(pb)
	c.Outliers = d.outlierDetection(faults.Field("outlier_detection"), pb.GetOutlierDetection())
	c.HealthCheck = d.healthCheck(pb)
	c.Sessions = d.sessions(pb)
	c.Load = d.loadReporting(pb)
	c.Service = serviceOf(pb)
	return c
}

const knownTypes = "this client knows EDS, STATIC, STRICT_DNS and LOGICAL_DNS, and aggregate and DNS clusters"

const (
	aggregateTypeURL = "type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig"
	dnsTypeURL       = "type.googleapis.com/envoy.extensions.clusters.dns.v3.DnsCluster"
)

// clusterType decodes the type of a cluster and what goes with it.
func (d clusterDecoder) clusterType(pb *clusterpb.Cluster, c *Cluster) {
	at := faults.Field("type")
	switch kind := pb.GetClusterDiscoveryType().(type) {
	case *clusterpb.Cluster_Type:
		switch kind.Type {
		case clusterpb.Cluster_EDS:
			c.EDSServiceName = d.edsServiceName(pb)
		case clusterpb.Cluster_STATIC:
			c.Kind = ClusterStatic
			d.inline(pb, c)
		case clusterpb.Cluster_STRICT_DNS:
			c.Kind = ClusterStrictDNS
			d.inline(pb, c)
			//lint:ignore SA1019 control planes still send it
			d.resolution(nil, pb.GetDnsLookupFamily(), pb.GetDnsRefreshRate(), c)
		case clusterpb.Cluster_LOGICAL_DNS:
			c.Kind = ClusterLogicalDNS
			d.inline(pb, c)
			d.resolution(nil, pb.GetDnsLookupFamily(), nil, c)
		default:
			d.fault(at, "unknown cluster type %v; %s", kind.Type, knownTypes)
		}
	case *clusterpb.Cluster_ClusterType:
		at := faults.Field("cluster_type")
		switch url := kind.ClusterType.GetTypedConfig().GetTypeUrl(); url {
		case aggregateTypeURL:
			d.aggregate(at.Field("typed_config"), kind.ClusterType.GetTypedConfig(), c)
		case dnsTypeURL:
			d.dnsCluster(at.Field("typed_config"), kind.ClusterType.GetTypedConfig(), pb, c)
		default:
			d.fault(at, "unknown cluster type %s (%s); %s", faults.Quote(kind.ClusterType.GetName()), faults.Quote(url), knownTypes)
		}
	default:
		d.fault(at, "the cluster type is not set; %s", knownTypes)
	}
}

func (d clusterDecoder) aggregate(at *faults.Path, packed *anypb.Any, c *Cluster) {
	c.Kind = ClusterAggregate
	config := new(aggregatepb.ClusterConfig)
	if !d.unmarshal(at, packed, aggregateTypeURL, config) {
		return
	}
	c.Underlying = config.GetClusters()
	if len(c.Underlying) == 0 {
		d.fault(at.Field("clusters"), "must have at least one entry")
	}
	for i, name := range c.Underlying {
		d.clusterName(at.Item("clusters", i), name)
	}
}

// dnsCluster decodes a cluster of type envoy.clusters.dns, which is a cluster of type STRICT_DNS or LOGICAL_DNS.
func (d clusterDecoder) dnsCluster(at *faults.Path, packed *anypb.Any, pb *clusterpb.Cluster, c *Cluster) {
	config := new(dnspb.DnsCluster)
	if !d.unmarshal(at, packed, dnsTypeURL, config) {
		return
	}
	c.Kind = ClusterStrictDNS
	if config.GetAllAddressesInSingleEndpoint() {
		c.Kind = ClusterLogicalDNS
	}
	d.inline(pb, c)
	d.resolution(at, config.GetDnsLookupFamily(), config.GetDnsRefreshRate(), c)
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
func (d clusterDecoder) inline(pb *clusterpb.Cluster, c *Cluster) {
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
