package xdsresource

import (
	"cmp"
	"math"
	"time"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/dynxds/dynxds/internal/draw"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/matching"
)

// Action is what a route does with an RPC: *Forward, *DirectResponse,
// *Redirect or *Unroutable.
type Action interface{ isAction() }

func (*Forward) isAction()        {}
func (*DirectResponse) isAction() {}
func (*Redirect) isAction()       {}
func (*Unroutable) isAction()     {}

// Forward sends the RPC to one of the clusters, by weight. Several
// routes may share one.
type Forward struct {
	// Clusters has at least one entry. The weights are at least 1, and their sum
	// fits 32 bits. RouteAction.cluster and cluster_header are one entry of weight 1.
	Clusters []WeightedCluster

	// weights are those of Clusters. It is nil if there is only one.
	weights *draw.Weights
}

func newWeights(clusters []WeightedCluster) *draw.Weights {
	weights := make([]uint32, len(clusters))
	for i := range clusters {
		weights[i] = clusters[i].Weight
	}
	return draw.New(weights)
}

// TotalWeight returns the sum of the weights.
func (f *Forward) TotalWeight() (total uint32) {
	for i := range f.Clusters {
		total += f.Clusters[i].Weight
	}
	return total
}

// Draw returns the index of the cluster of an RPC, at random by weight. It takes no lock and, on a
// decoded value, allocates nothing.
func (f *Forward) Draw() int {
	if len(f.Clusters) == 1 {
		return 0
	}
	w := f.weights
	if w == nil {
		w = newWeights(f.Clusters)
	}
	return w.Pick()
}

// WeightedCluster is one destination of a Forward. Entries of weight 0 are
// left out when the route is decoded. Exactly one of Name and Header is set;
// see Cluster.
type WeightedCluster struct {
	Name string
	// Header is the request header, in lower case, whose first value is the
	// name of the cluster (cluster_header).
	Header string
	Weight uint32
	// Headers has the edits for RPCs that go to this cluster, those of the
	// levels above included. nil: Route.Headers applies.
	Headers *HeaderMutations
	// Overrides is ClusterWeight.typed_per_filter_config, the most specific of
	// the three levels.
	Overrides FilterOverrides
	// Authority replaces the authority of RPCs that go to this cluster, unless
	// Rewrite does (ClusterWeight.host_rewrite_literal; the route wins, as in
	// Envoy). Empty: it is not replaced. Always empty if the server is not a
	// trusted_xds_server.
	Authority string
}

// Cluster returns the cluster that an RPC goes to: Name, or the first value of
// Header, or "" if the RPC does not have that header.
//
// A cluster that a header names is not among VirtualHost.Clusters. Like Envoy, which
// forwards only to clusters that it already has, the client does not subscribe to a
// cluster because an RPC names it: such an RPC reaches only clusters that the virtual
// host names elsewhere, in a route, a weighted cluster or a mirror. The caller fails an
// RPC whose header is missing or names another cluster with UNAVAILABLE.
func (c *WeightedCluster) Cluster(rpc *matching.RPC) string {
	if c.Header == "" {
		return c.Name
	}
	return rpc.FirstHeader(c.Header)
}

// Unroutable fails matching RPCs with UNAVAILABLE, as gRPC clients do not support the
// route's action. The route is kept, since the first match wins (gRFC A28).
type Unroutable struct {
	// Reason names the action, for the RPC's error.
	Reason string
}

// forwarding decodes a RouteAction. It reports false if the route is ignored.
func (d *routeDecoder) forwarding(at *faults.Path, pb *routepb.RouteAction, s *Settings) bool {
	s.MaxStreamDuration = d.maxStreamDuration(at.Field("max_stream_duration"), pb.GetMaxStreamDuration())
	s.HashPolicies = d.hashPolicies(at, pb.GetHashPolicy())
	s.Mirrors = d.mirrors(at, pb.GetRequestMirrorPolicies(), d.host.mirrors)
	s.Rewrite = d.rewrite(at, pb)
	s.Retry = d.host.retry
	if retry := pb.GetRetryPolicy(); retry != nil {
		s.Retry = d.retryPolicy(at.Field("retry_policy"), retry)
	}
	if cmp.Or(pb.GetHedgePolicy(), d.host.hedge).GetHedgeOnPerTryTimeout() {
		s.Retry = s.Retry.hedgedOnTimeout()
	}
	forward := d.forward(at, pb, s.Headers)
	if forward == nil {
		return false
	}
	s.Action = forward
	return true
}

// forward decodes the destination of a RouteAction; headers are those of its
// route. It returns nil if the route is ignored (gRFC A28: its cluster_specifier is not
// set or not supported), and after an error.
func (d *routeDecoder) forward(at *faults.Path, pb *routepb.RouteAction, headers *HeaderMutations) *Forward {
	switch specifier := pb.GetClusterSpecifier().(type) {
	case *routepb.RouteAction_Cluster:
		d.clusterName(at.Field("cluster"), specifier.Cluster)
		return d.forwardToOne(specifier.Cluster)
	case *routepb.RouteAction_ClusterHeader:
		name := d.headerName(at.Field("cluster_header"), specifier.ClusterHeader)
		return &Forward{Clusters: []WeightedCluster{{Header: name, Weight: 1}}}
	case *routepb.RouteAction_WeightedClusters:
		return d.weightedClusters(at.Field("weighted_clusters"), specifier.WeightedClusters, headers)
	case *routepb.RouteAction_ClusterSpecifierPlugin:
		if f := d.forwardToPlugin(at, specifier.ClusterSpecifierPlugin); f != nil {
			return f
		}
	case *routepb.RouteAction_InlineClusterSpecifierPlugin:
		if f := d.forwardToInlinePlugin(at, specifier.InlineClusterSpecifierPlugin); f != nil {
			return f
		}
	}
	d.warn(at, "the route is left out, since cluster_specifier is %s (gRFC A28)", whichOneof(pb, "cluster_specifier"))
	return nil
}

// forwardToOne returns the Forward to a single cluster. Routes to the same
// cluster share one.
func (d *routeDecoder) forwardToOne(cluster string) *Forward {
	if f, ok := d.forwards[cluster]; ok {
		return f
	}
	if d.forwards == nil {
		d.forwards = make(map[string]*Forward)
	}
	cluster = d.intern(cluster)
	f := &Forward{Clusters: []WeightedCluster{{Name: cluster, Weight: 1}}}
	d.forwards[cluster] = f
	return f
}

// weightedClusters decodes a WeightedCluster. It ignores the deprecated total_weight and
// adds up the weights of the entries.
func (d *routeDecoder) weightedClusters(at *faults.Path, pb *routepb.WeightedCluster, headers *HeaderMutations) *Forward {
	f := &Forward{Clusters: make([]WeightedCluster, 0, len(pb.GetClusters()))}
	var total uint64
	for i, entry := range pb.GetClusters() {
		at := at.Item("clusters", i)
		weight := entry.GetWeight().GetValue()
		if weight == 0 {
			// The cluster gets no RPC, but gRFC A39, "Filter Config Overrides", has
			// each typed_per_filter_config validated.
			d.filterOverrides(at, entry.GetTypedPerFilterConfig())
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
	case len(f.Clusters) > 1:
		f.weights = newWeights(f.Clusters)
	}
	return f
}

func (d *routeDecoder) clusterWeight(at *faults.Path, pb *routepb.WeightedCluster_ClusterWeight, headers *HeaderMutations) WeightedCluster {
	c := WeightedCluster{
		Weight:    pb.GetWeight().GetValue(),
		Overrides: d.filterOverrides(at, pb.GetTypedPerFilterConfig()),
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
