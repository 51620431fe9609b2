package xdsresource

import (
	"strings"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	aggregatepb "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/xdsclient"
)

func decodeCluster(resource *anypb.Any, o xdsclient.DecodeOptions) (string, any, error) {
	return decode(resource, o, ClusterTypeURL, new(clusterpb.Cluster), "name",
		(*clusterpb.Cluster).GetName, clusterOf)
}

func clusterOf(v *validator, pb *clusterpb.Cluster) *Cluster {
	return clusterDecoder{v}.cluster(pb)
}

// clusterDecoder decodes a Cluster.
type clusterDecoder struct{ *validator }

func (d clusterDecoder) cluster(pb *clusterpb.Cluster) *Cluster {
	c := &Cluster{Name: pb.GetName(), TransportSocket: transportSocket(pb)}
	if d.clusterType(pb, c); c.Kind == ClusterAggregate {
		return c
	}
	c.MaxRequests = maxRequests(pb)
	policyDecoder{d.validator, c}.cluster(pb)
	c.Outliers = d.outlierDetection(pb.GetOutlierDetection())
	c.Sessions = d.sessions(pb)
	c.Load = d.loadReporting(pb)
	c.Ignored = d.ignored.list()
	return c
}

const knownTypes = "this client knows EDS, STATIC, STRICT_DNS and LOGICAL_DNS, and aggregate clusters"

const aggregateTypeURL = "type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig"

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
			d.dns(pb, c)
		case clusterpb.Cluster_LOGICAL_DNS:
			c.Kind = ClusterLogicalDNS
			d.inline(pb, c)
			d.dns(pb, c)
		default:
			d.fault(at, "unknown cluster type %v; %s", kind.Type, knownTypes)
		}
	case *clusterpb.Cluster_ClusterType:
		d.customType(kind.ClusterType, c)
	default:
		d.fault(at, "the cluster type is not set; %s", knownTypes)
	}
}

func (d clusterDecoder) customType(pb *clusterpb.Cluster_CustomClusterType, c *Cluster) {
	at := faults.Field("cluster_type")
	if url := pb.GetTypedConfig().GetTypeUrl(); url != aggregateTypeURL {
		d.fault(at, "unknown cluster type %s (%s); %s", faults.Quote(pb.GetName()), faults.Quote(url), knownTypes)
		return
	}
	c.Kind = ClusterAggregate
	at = at.Field("typed_config")
	config := new(aggregatepb.ClusterConfig)
	if !d.unmarshal(at, pb.GetTypedConfig(), aggregateTypeURL, config) {
		return
	}
	c.Underlying = config.GetClusters()
	if len(c.Underlying) == 0 {
		d.fault(at.Field("clusters"), "must have at least one entry")
	}
	for i, name := range c.Underlying {
		if name == "" {
			d.fault(at.Item("clusters", i), "must not be empty")
		}
	}
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
