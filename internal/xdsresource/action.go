package xdsresource

import (
	"math"
	"time"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/dynxds/dynxds/internal/faults"
)

// forwarding decodes a RouteAction. It reports false if the route is to be
// ignored.
func (d *routeDecoder) forwarding(at *faults.Path, pb *routepb.RouteAction, route *Route) bool {
	route.MaxStreamDuration = d.maxStreamDuration(at.Field("max_stream_duration"), pb.GetMaxStreamDuration())
	route.HashPolicies = d.hashPolicies(at, pb.GetHashPolicy())
	route.Mirrors = d.mirrors(at, pb.GetRequestMirrorPolicies(), d.host.mirrors)
	route.Rewrite = d.rewrite(at, pb)
	route.Retry = d.host.retry
	if retry := pb.GetRetryPolicy(); retry != nil {
		route.Retry = d.retryPolicy(at.Field("retry_policy"), retry)
	}
	forward := d.forward(at, pb, route.Headers)
	if forward == nil {
		return false
	}
	route.Action = forward
	return true
}

// forward decodes the destination of a RouteAction; headers are those of its
// route. It returns nil if the route is to be ignored (gRFC A28: its
// cluster_specifier is not set or not supported), and also after a fault.
func (d *routeDecoder) forward(at *faults.Path, pb *routepb.RouteAction, headers *HeaderMutations) *Forward {
	switch specifier := pb.GetClusterSpecifier().(type) {
	case *routepb.RouteAction_Cluster:
		return d.forwardToOne(at.Field("cluster"), specifier.Cluster)
	case *routepb.RouteAction_ClusterHeader:
		name := d.headerName(at.Field("cluster_header"), specifier.ClusterHeader)
		return &Forward{Clusters: []WeightedCluster{{Header: name, Weight: 1}}, TotalWeight: 1}
	case *routepb.RouteAction_WeightedClusters:
		return d.weightedClusters(at.Field("weighted_clusters"), specifier.WeightedClusters, headers)
	case *routepb.RouteAction_ClusterSpecifierPlugin:
		if !d.plugins[specifier.ClusterSpecifierPlugin] {
			d.fault(at.Field("cluster_specifier_plugin"), "%s is not in cluster_specifier_plugins of the RouteConfiguration",
				faults.Quote(specifier.ClusterSpecifierPlugin))
		}
	}
	d.warn(at, "the route is left out, since cluster_specifier is %s (gRFC A28)", whichOneof(pb, "cluster_specifier"))
	return nil
}

// forwardToOne returns the Forward to a single cluster. Routes to the same
// cluster share one.
func (d *routeDecoder) forwardToOne(at *faults.Path, cluster string) *Forward {
	if cluster == "" {
		d.fault(at, "must not be empty")
		return nil
	}
	if f, ok := d.forwards[cluster]; ok {
		return f
	}
	if d.forwards == nil {
		d.forwards = make(map[string]*Forward)
	}
	cluster = d.intern(cluster)
	f := &Forward{Clusters: []WeightedCluster{{Name: cluster, Weight: 1}}, TotalWeight: 1}
	d.forwards[cluster] = f
	return f
}

// weightedClusters ignores the deprecated total_weight: the weights of the
// entries alone decide.
func (d *routeDecoder) weightedClusters(at *faults.Path, pb *routepb.WeightedCluster, headers *HeaderMutations) *Forward {
	f := &Forward{Clusters: make([]WeightedCluster, 0, len(pb.GetClusters()))}
	var total uint64
	for i, entry := range pb.GetClusters() {
		at := at.Item("clusters", i)
		weight := entry.GetWeight().GetValue()
		if weight == 0 {
			// The cluster gets no RPC. But gRFC A39, "Filter Config Overrides", has
			// each typed_per_filter_config validated.
			d.overrides.filterOverrides(at, entry.GetTypedPerFilterConfig())
			continue
		}
		total += uint64(weight)
		f.Clusters = append(f.Clusters, d.clusterWeight(at, entry, headers))
	}
	switch {
	case total == 0:
		d.fault(at.Field("clusters"), "must have an entry with a weight above 0")
	case total > math.MaxUint32:
		d.fault(at.Field("clusters"), "the weights add up to %d, more than %d", total, uint32(math.MaxUint32))
	}
	f.TotalWeight = uint32(total)
	return f
}

func (d *routeDecoder) clusterWeight(at *faults.Path, pb *routepb.WeightedCluster_ClusterWeight, headers *HeaderMutations) WeightedCluster {
	c := WeightedCluster{
		Weight:    pb.GetWeight().GetValue(),
		Overrides: d.overrides.filterOverrides(at, pb.GetTypedPerFilterConfig()),
		Authority: d.authority(at.Field("host_rewrite_literal"), pb.GetHostRewriteLiteral()),
	}
	c.Name, c.Header = d.clusterOrHeader(at, "name", pb.GetName(), pb.GetClusterHeader())
	if merged := d.headerMutations(at, pb, headers); merged != headers {
		c.Headers = merged
	}
	return c
}

// maxStreamDuration returns the bound that gRFC A31 derives from the two
// fields, or nil if neither is set.
func (d *routeDecoder) maxStreamDuration(at *faults.Path, pb *routepb.RouteAction_MaxStreamDuration) *time.Duration {
	limit := d.duration(at.Field("max_stream_duration"), pb.GetMaxStreamDuration())
	if header := pb.GetGrpcTimeoutHeaderMax(); header != nil {
		limit = d.duration(at.Field("grpc_timeout_header_max"), header)
	} else if pb.GetMaxStreamDuration() == nil {
		return nil
	}
	return &limit
}
