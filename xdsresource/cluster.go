package xdsresource

import (
	"strings"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/xdsclient"
)

func decodeCluster(resource *anypb.Any, o xdsclient.DecodeOptions) (string, any, error) {
	return decode(resource, o, ClusterTypeURL, new(clusterpb.Cluster), "name",
		(*clusterpb.Cluster).GetName, (*validator).cluster)
}

func (v *validator) cluster(pb *clusterpb.Cluster) *Cluster {
	c := &Cluster{Name: pb.GetName(), MaxRequests: maxRequests(pb)}
	if v.isEDS(pb) {
		c.EDSServiceName = v.edsServiceName(pb)
	}
	v.lbPolicy(pb, c)
	c.Outliers = v.outlierDetection(pb.GetOutlierDetection())
	c.Sessions = v.sessions(pb)
	if server := pb.GetLrsServer(); server != nil && server.GetSelf() == nil {
		v.fault((*path)(nil).field("lrs_server"), "must be self, is %s", whichOneof(server, "config_source_specifier"))
	}
	return c
}

func (v *validator) isEDS(pb *clusterpb.Cluster) bool {
	const known = "this client knows EDS"
	switch kind := pb.GetClusterDiscoveryType().(type) {
	case *clusterpb.Cluster_Type:
		if kind.Type == clusterpb.Cluster_EDS {
			return true
		}
		v.fault((*path)(nil).field("type"), "unknown cluster type %v; %s", kind.Type, known)
	case *clusterpb.Cluster_ClusterType:
		v.fault((*path)(nil).field("cluster_type"), "unknown cluster type %s (%s); %s",
			quote(kind.ClusterType.GetName()), quote(kind.ClusterType.GetTypedConfig().GetTypeUrl()), known)
	default:
		v.fault((*path)(nil).field("type"), "the cluster type is not set; %s", known)
	}
	return false
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
