package xdsresource

import (
	"strings"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	aggregatepb "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/xdsclient"
)

func decodeCluster(resource *anypb.Any, o xdsclient.DecodeOptions) (string, any, error) {
	return decode(resource, o, typeurl.Cluster, new(clusterpb.Cluster), "name",
		(*clusterpb.Cluster).GetName, (*validator).cluster)
}

func (v *validator) cluster(pb *clusterpb.Cluster) *Cluster {
	c := &Cluster{Name: pb.GetName(), TransportSocket: transportSocket(pb)}
	if v.clusterType(pb, c); c.Kind == ClusterAggregate {
		return c
	}
	c.MaxRequests = maxRequests(pb)
	v.lbPolicy(pb, c)
	c.Outliers = v.outlierDetection(pb.GetOutlierDetection())
	c.Sessions = v.sessions(pb)
	c.Load = v.loadReporting(pb)
	c.Ignored = v.ignored.list()
	return c
}

const knownTypes = "this client knows EDS, STATIC, STRICT_DNS and LOGICAL_DNS, and aggregate clusters"

const aggregateTypeURL = "type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig"

// clusterType decodes the type of a cluster and what goes with it.
func (v *validator) clusterType(pb *clusterpb.Cluster, c *Cluster) {
	at := (*path)(nil).field("type")
	switch kind := pb.GetClusterDiscoveryType().(type) {
	case *clusterpb.Cluster_Type:
		switch kind.Type {
		case clusterpb.Cluster_EDS:
			c.EDSServiceName = v.edsServiceName(pb)
		case clusterpb.Cluster_STATIC:
			c.Kind = ClusterStatic
			v.inline(pb, c)
		case clusterpb.Cluster_STRICT_DNS:
			c.Kind = ClusterStrictDNS
			v.inline(pb, c)
			v.dns(pb, c)
		case clusterpb.Cluster_LOGICAL_DNS:
			c.Kind = ClusterLogicalDNS
			v.inline(pb, c)
			v.dns(pb, c)
		default:
			v.fault(at, "unknown cluster type %v; %s", kind.Type, knownTypes)
		}
	case *clusterpb.Cluster_ClusterType:
		v.customType(kind.ClusterType, c)
	default:
		v.fault(at, "the cluster type is not set; %s", knownTypes)
	}
}

func (v *validator) customType(pb *clusterpb.Cluster_CustomClusterType, c *Cluster) {
	at := (*path)(nil).field("cluster_type")
	if url := pb.GetTypedConfig().GetTypeUrl(); url != aggregateTypeURL {
		v.fault(at, "unknown cluster type %s (%s); %s", quote(pb.GetName()), quote(url), knownTypes)
		return
	}
	c.Kind = ClusterAggregate
	at = at.field("typed_config")
	config := new(aggregatepb.ClusterConfig)
	if !v.unmarshal(at, pb.GetTypedConfig(), aggregateTypeURL, config) {
		return
	}
	c.Underlying = config.GetClusters()
	if len(c.Underlying) == 0 {
		v.fault(at.field("clusters"), "must have at least one entry")
	}
	for i, name := range c.Underlying {
		if name == "" {
			v.fault(at.item("clusters", i), "must not be empty")
		}
	}
}

func (v *validator) edsServiceName(pb *clusterpb.Cluster) string {
	at := (*path)(nil).field("eds_cluster_config")
	v.adsOrSelf(at.field("eds_config"), pb.GetEdsClusterConfig().GetEdsConfig())
	if name := pb.GetEdsClusterConfig().GetServiceName(); name != "" {
		return name
	}
	// The name of the Cluster could not be that of another resource, since an
	// xdstp name has the resource type in it (gRFC A47).
	if strings.HasPrefix(pb.GetName(), "xdstp:") {
		v.fault(at.field("service_name"), "must not be empty in a cluster whose name starts with xdstp:")
	}
	return pb.GetName()
}

// maxRequests is that of the first threshold of priority DEFAULT; gRPC knows no
// other priority (gRFC A32).
func maxRequests(pb *clusterpb.Cluster) uint32 {
	for _, t := range pb.GetCircuitBreakers().GetThresholds() {
		if t.GetPriority() != corepb.RoutingPriority_DEFAULT {
			continue
		}
		if limit := t.GetMaxRequests(); limit != nil {
			return limit.GetValue()
		}
		break
	}
	return DefaultMaxRequests
}
