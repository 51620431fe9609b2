package xdsresource

import (
	"math"
	"time"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
)

// forwarding decodes a RouteAction. It reports false if the route is to be
// ignored.
func (r *routes) forwarding(at *path, pb *routepb.RouteAction, route *Route) bool {
	v := r.v
	route.MaxStreamDuration = v.maxStreamDuration(at.field("max_stream_duration"), pb.GetMaxStreamDuration())
	route.HashPolicies = v.hashPolicies(at, pb.GetHashPolicy())
	route.Mirrors = v.mirrors(at, pb.GetRequestMirrorPolicies(), r.host.mirrors)
	route.Rewrite = v.rewrite(at, pb)
	route.Retry = r.host.retry
	if retry := pb.GetRetryPolicy(); retry != nil {
		route.Retry = v.retryPolicy(at.field("retry_policy"), retry)
	}
	forward := r.forward(at, pb, route.Headers)
	if forward == nil {
		return false
	}
	route.Action = forward
	return true
}

// forward decodes the destination of a RouteAction; headers are those of its
// route. It returns nil if the route is to be ignored (gRFC A28: its
// cluster_specifier is not set or not supported), and also after a fault.
func (r *routes) forward(at *path, pb *routepb.RouteAction, headers *HeaderMutations) *Forward {
	switch specifier := pb.GetClusterSpecifier().(type) {
	case *routepb.RouteAction_Cluster:
		return r.v.forwardToOne(at.field("cluster"), specifier.Cluster)
	case *routepb.RouteAction_ClusterHeader:
		name := r.v.headerName(at.field("cluster_header"), specifier.ClusterHeader)
		return &Forward{Clusters: []WeightedCluster{{Header: name, Weight: 1}}, TotalWeight: 1}
	case *routepb.RouteAction_WeightedClusters:
		return r.weightedClusters(at.field("weighted_clusters"), specifier.WeightedClusters, headers)
	case *routepb.RouteAction_ClusterSpecifierPlugin:
		if !r.plugins[specifier.ClusterSpecifierPlugin] {
			r.v.fault(at.field("cluster_specifier_plugin"), "%s is not in cluster_specifier_plugins of the RouteConfiguration",
				quote(specifier.ClusterSpecifierPlugin))
		}
	}
	r.v.warn(at, "the route is left out, since cluster_specifier is %s (gRFC A28)", whichOneof(pb, "cluster_specifier"))
	return nil
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
func (r *routes) weightedClusters(at *path, pb *routepb.WeightedCluster, headers *HeaderMutations) *Forward {
	v := r.v
	f := &Forward{Clusters: make([]WeightedCluster, 0, len(pb.GetClusters()))}
	var total uint64
	for i, entry := range pb.GetClusters() {
		at := at.item("clusters", i)
		weight := entry.GetWeight().GetValue()
		if weight == 0 {
			// The cluster gets no RPC. But gRFC A39, "Filter Config Overrides", has
			// each typed_per_filter_config validated.
			v.filterOverrides(at, entry.GetTypedPerFilterConfig())
			continue
		}
		total += uint64(weight)
		f.Clusters = append(f.Clusters, r.clusterWeight(at, entry, headers))
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

func (r *routes) clusterWeight(at *path, pb *routepb.WeightedCluster_ClusterWeight, headers *HeaderMutations) WeightedCluster {
	c := WeightedCluster{
		Weight:    pb.GetWeight().GetValue(),
		Overrides: r.v.filterOverrides(at, pb.GetTypedPerFilterConfig()),
		Authority: r.v.authority(at.field("host_rewrite_literal"), pb.GetHostRewriteLiteral()),
	}
	c.Name, c.Header = r.v.clusterOrHeader(at, "name", pb.GetName(), pb.GetClusterHeader())
	if merged := r.headerMutations(at, pb, headers); merged != headers {
		c.Headers = merged
	}
	return c
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
