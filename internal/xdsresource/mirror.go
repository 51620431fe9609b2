package xdsresource

import (
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/matching"
)

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
	m.Headers = d.mirrorMutations(at, pb.GetRequestHeadersMutations())
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
