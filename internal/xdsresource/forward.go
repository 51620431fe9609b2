package xdsresource

import (
	"cmp"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/draw"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/headeredit"
	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsname"
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
		return d.forwardTo(specifier.Cluster)
	case *routepb.RouteAction_ClusterHeader:
		name := d.headerName(at.Field("cluster_header"), specifier.ClusterHeader)
		return &Forward{Clusters: []WeightedCluster{{Header: name, Weight: 1}}}
	case *routepb.RouteAction_WeightedClusters:
		return d.weightedClusters(at.Field("weighted_clusters"), specifier.WeightedClusters, headers)
	case *routepb.RouteAction_ClusterSpecifierPlugin:
		if c, known := d.plugins[specifier.ClusterSpecifierPlugin]; !known {
			d.fault(at.Field("cluster_specifier_plugin"), "%s is not in cluster_specifier_plugins of the RouteConfiguration", faults.Quote(specifier.ClusterSpecifierPlugin))
		} else if c != nil {
			return d.forwardToPlugin(c)
		}
	case *routepb.RouteAction_InlineClusterSpecifierPlugin:
		if c := d.inlinePlugin(at.Field("inline_cluster_specifier_plugin"), specifier.InlineClusterSpecifierPlugin); c != nil {
			return d.forwardToPlugin(c)
		}
	}
	d.warn(at, "the route is left out, since cluster_specifier is %s (gRFC A28)", whichOneof(pb, "cluster_specifier"))
	return nil
}

func (d *routeDecoder) forwardTo(cluster string) *Forward {
	return &Forward{Clusters: []WeightedCluster{{Name: d.intern(cluster), Weight: 1}}}
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

// Mirror is a RequestMirrorPolicy: where RPCs are mirrored to. The outcome of a mirrored
// RPC is ignored.
type Mirror struct {
	// Cluster is where the mirrored RPC goes. Exactly one of Cluster and Header
	// is set; see Target.
	Cluster string
	// Header is the request header, in lower case, whose first value names the
	// cluster (cluster_header).
	Header string
	// FractionPerMillion is the share of RPCs that are mirrored
	// (runtime_fraction.default_value). nil: all. See matching.Draw.
	FractionPerMillion *uint32
	// ShadowSuffix appends "-shadow" to the host of the mirrored RPC's authority.
	// It is set unless disable_shadow_host_suffix_append is.
	ShadowSuffix bool
	// Authority is that of the mirrored RPC (host_rewrite_literal). Empty: that of
	// the original. It is always empty if the server is not a trusted_xds_server.
	// ShadowSuffix is false if it is set.
	Authority string
	// Headers edits the request metadata of the mirrored RPC, after Route.Headers
	// (request_headers_mutations).
	Headers HeaderEdits
}

// Target returns the cluster that an RPC is mirrored to, or "" if the RPC does not have the
// header that names it; then it is not mirrored. As with WeightedCluster.Cluster, a header
// can name only clusters that the virtual host names elsewhere.
func (m *Mirror) Target(rpc *matching.RPC) string {
	if m.Header == "" {
		return m.Cluster
	}
	return rpc.FirstHeader(m.Header)
}

// mirrors decodes request_mirror_policies. If there are none it returns those of the level
// above; policies of several levels are never combined.
func (d *routeDecoder) mirrors(at *faults.Path, pbs []*routepb.RouteAction_RequestMirrorPolicy, above []Mirror) []Mirror {
	if len(pbs) == 0 {
		return above
	}
	if !d.atMost(at.Field("request_mirror_policies"), len(pbs), bounds.Mirrors) {
		return nil
	}
	mirrors := make([]Mirror, len(pbs))
	for i, pb := range pbs {
		mirrors[i] = d.mirror(at.Item("request_mirror_policies", i), pb)
	}
	return mirrors
}

func (d *routeDecoder) mirror(at *faults.Path, pb *routepb.RouteAction_RequestMirrorPolicy) Mirror {
	m := Mirror{ShadowSuffix: !pb.GetDisableShadowHostSuffixAppend()}
	m.Cluster, m.Header = d.clusterOrHeader(at, "cluster", pb.GetCluster(), pb.GetClusterHeader())
	if fraction := pb.GetRuntimeFraction(); fraction != nil {
		m.FractionPerMillion = d.runtimeFraction(at.Field("runtime_fraction"), fraction)
	}
	if literal := pb.GetHostRewriteLiteral(); literal != "" {
		m.ShadowSuffix = false
		m.Authority = d.authority(at.Field("host_rewrite_literal"), literal)
	}
	edits := headerEdits(d, at, headeredit.Request, "request_headers_mutations", pb.GetRequestHeadersMutations(), headeredit.FromMutation)
	if len(edits) > 0 {
		m.Headers = HeaderEdits{edits}
	}
	return m
}

// clusterOrHeader reads a cluster's name or the header that names it; exactly one must be
// set. field is the field of the name.
func (d *routeDecoder) clusterOrHeader(at *faults.Path, field, name, header string) (cluster, headerName string) {
	switch {
	case name != "" && header != "":
		d.fault(at, "%s and cluster_header are both set", field)
	case header != "":
		return "", d.headerName(at.Field("cluster_header"), header)
	default:
		d.clusterName(at.Field(field), name)
	}
	return d.intern(name), ""
}

// Plugin reads the config of a cluster specifier plugin. It returns the load-balancing policy that chooses a cluster for
// each RPC, and the policy's config as JSON, which that has accepted.
type Plugin func(*anypb.Any) (policy, config string, err error)

// plugins has the Plugin of each message.
var plugins = make(map[string]Plugin)

// RegisterPlugin makes the decoder use a Plugin for configs of the named message. It is called by init functions only.
func RegisterPlugin(message string, p Plugin) { plugins[message] = p }

// rlsPlugin is the message whose Plugin a program imports.
const rlsPlugin = "grpc.lookup.v1.RouteLookupClusterSpecifier"

// PluginName returns what a cluster of a route is called in cluster_specifier_plugins. It reports false if it is an
// ordinary cluster.
func PluginName(cluster string) (name string, ok bool) {
	return strings.CutPrefix(cluster, xdsname.PluginPrefix)
}

// clusterSpecifierPlugins decodes the plugins by name. One that is optional and of an unknown type is nil.
func (d *routeDecoder) clusterSpecifierPlugins(at *faults.Path, pbs []*routepb.ClusterSpecifierPlugin) map[string]*Cluster {
	known := make(map[string]*Cluster, len(pbs))
	for i, pb := range pbs {
		at, name := at.Item("cluster_specifier_plugins", i), pb.GetExtension().GetName()
		if _, taken := known[name]; taken {
			d.fault(at, "there is a plugin %s before", faults.Quote(name))
			continue
		}
		known[name] = nil
		switch message := typeurl.Name(pb.GetExtension().GetTypedConfig().GetTypeUrl()); {
		case plugins[message] != nil:
			known[name] = d.plugin(at, xdsname.PluginPrefix+name, pb)
		case !pb.GetIsOptional():
			toImport := ""
			if message == rlsPlugin {
				toImport = "; import github.com/dynxds/dynxds/balancer/rls"
			}
			d.fault(at, "plugin %s: this client has no plugin for type %s, and is_optional is not set%s",
				faults.Quote(name), faults.Quote(pb.GetExtension().GetTypedConfig().GetTypeUrl()), toImport)
		}
	}
	return known
}

// clusterName checks the name of a cluster that a resource refers to. Those of plugins are not names of Clusters.
func (v *validator) clusterName(at *faults.Path, name string) {
	if name == "" {
		v.fault(at, "must not be empty")
	} else if _, plugin := PluginName(name); plugin {
		v.fault(at, "must not begin with %q", xdsname.PluginPrefix)
	}
}

// plugin decodes a plugin of a known type, as the cluster of the given name.
func (d *routeDecoder) plugin(at *faults.Path, cluster string, pb *routepb.ClusterSpecifierPlugin) *Cluster {
	config := pb.GetExtension().GetTypedConfig()
	policy, text, err := plugins[typeurl.Name(config.GetTypeUrl())](config)
	if err != nil {
		d.fault(at.Field("extension").Field("typed_config"), "%v", err)
		return nil
	}
	return &Cluster{Name: cluster, Kind: ClusterPlugin, LBPolicy: policy, LBConfig: text}
}

// inlinePlugin returns the cluster of a plugin of the route's own, nil if its type is not known and after an error.
func (d *routeDecoder) inlinePlugin(at *faults.Path, pb *routepb.ClusterSpecifierPlugin) *Cluster {
	name := xdsname.PluginPrefix + pb.GetExtension().GetName() + "#" + strconv.FormatUint(xxhash.Sum64(marshal(pb)), 16)
	if c := d.used[name]; c != nil || plugins[typeurl.Name(pb.GetExtension().GetTypedConfig().GetTypeUrl())] == nil {
		return c
	}
	return d.plugin(at, name, pb)
}

// forwardToPlugin returns the Forward to the cluster of a plugin.
func (d *routeDecoder) forwardToPlugin(c *Cluster) *Forward {
	d.tied = true
	if d.used == nil {
		d.used = make(map[string]*Cluster)
	}
	d.used[c.Name] = c
	return d.forwardTo(c.Name)
}
