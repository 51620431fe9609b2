package xdsresource

import (
	"math"
	"time"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
)

// forward decodes the destination of a RouteAction. It returns nil if the
// route is to be ignored (gRFC A28: its cluster_specifier is not set or not
// supported), and also after a fault.
func (r *routes) forward(at *path, pb *routepb.RouteAction) *Forward {
	switch specifier := pb.GetClusterSpecifier().(type) {
	case *routepb.RouteAction_Cluster:
		return r.v.forwardToOne(at.field("cluster"), specifier.Cluster)
	case *routepb.RouteAction_WeightedClusters:
		return r.v.weightedClusters(at.field("weighted_clusters"), specifier.WeightedClusters)
	case *routepb.RouteAction_ClusterSpecifierPlugin:
		if !r.plugins[specifier.ClusterSpecifierPlugin] {
			r.v.fault(at.field("cluster_specifier_plugin"), "%s is not in cluster_specifier_plugins of the RouteConfiguration",
				quote(specifier.ClusterSpecifierPlugin))
		}
		return nil
	default:
		return nil
	}
}

// forwardToOne returns the Forward to a single cluster. Routes to the same
// cluster share one.
func (v *validator) forwardToOne(at *path, cluster string) *Forward {
	if cluster == "" {
		v.fault(at, "must not be empty")
		return nil
	}
	if f, ok := v.forwards[cluster]; ok {
		return f
	}
	if v.forwards == nil {
		v.forwards = make(map[string]*Forward)
	}
	cluster = v.intern(cluster)
	f := &Forward{Clusters: []WeightedCluster{{Name: cluster, Weight: 1}}, TotalWeight: 1}
	v.forwards[cluster] = f
	return f
}

// weightedClusters ignores the deprecated total_weight: the weights of the
// entries alone decide.
func (v *validator) weightedClusters(at *path, pb *routepb.WeightedCluster) *Forward {
	f := &Forward{Clusters: make([]WeightedCluster, 0, len(pb.GetClusters()))}
	var total uint64
	for i, entry := range pb.GetClusters() {
		weight := entry.GetWeight().GetValue()
		if weight == 0 {
			continue
		}
		if entry.GetName() == "" {
			v.fault(at.item("clusters", i).field("name"), "must not be empty")
		}
		total += uint64(weight)
		f.Clusters = append(f.Clusters, WeightedCluster{Name: v.intern(entry.GetName()), Weight: weight})
	}
	switch {
	case total == 0:
		v.fault(at.field("clusters"), "must have an entry with a weight above 0")
	case total > math.MaxUint32:
		v.fault(at.field("clusters"), "the weights add up to %d, more than %d", total, uint32(math.MaxUint32))
	}
	f.TotalWeight = uint32(total)
	return f
}

// maxStreamDuration returns the bound that gRFC A31 derives from the two
// fields, or nil if neither is set.
func (v *validator) maxStreamDuration(at *path, pb *routepb.RouteAction_MaxStreamDuration) *time.Duration {
	limit := v.duration(at.field("max_stream_duration"), pb.GetMaxStreamDuration())
	if header := pb.GetGrpcTimeoutHeaderMax(); header != nil {
		limit = v.duration(at.field("grpc_timeout_header_max"), header)
	} else if pb.GetMaxStreamDuration() == nil {
		return nil
	}
	return &limit
}
