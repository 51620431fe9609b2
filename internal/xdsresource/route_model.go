package xdsresource

import (
	"time"

	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/xdsclient"
)

// RouteConfiguration is a validated RouteConfiguration. The decoder compiles
// what its methods look up; they work on one put together by hand as well, but
// then compile on each call.
type RouteConfiguration struct {
	Name         string
	VirtualHosts []*VirtualHost
	// Ignored lists what was left out of VirtualHosts: header edits that gRPC
	// cannot carry out, optional filter overrides of unknown types, routes that
	// gRFC A28 has ignored. At most 100 entries. It is empty if the
	// RouteConfiguration is part of a Listener, which has them.
	Ignored []xdsclient.Ignored

	compiled *domainTable
	// raw is what it was decoded from, if it is a resource of its own, and regexCost
	// what its regular expressions come to, see patch.
	raw       []byte
	regexCost int
}

// VirtualHost is a validated VirtualHost with the routes gRPC can use, in
// their order. As with RouteConfiguration, one put together by hand works and
// is slow. What a VirtualHost says for all its routes (retry policy, mirrors,
// header edits) has been merged into them, filter overrides excepted.
type VirtualHost struct {
	Name    string
	Domains []string
	Routes  []*Route
	// Overrides is VirtualHost.typed_per_filter_config, the least specific of
	// the three levels.
	Overrides FilterOverrides

	compiled *routeTable
}

// Route is one route: what it matches and what becomes of the RPC. Everything
// behind it is shared between RPCs and must not be changed.
type Route struct {
	// Name is Route.name, for logs; often empty.
	Name  string
	Match matching.Route
	// Action says what becomes of a matching RPC.
	Action Action
	// MaxStreamDuration bounds matching RPCs. nil: the Listener's bound
	// applies; 0: no bound. Source: gRFC A31.
	MaxStreamDuration *time.Duration
	// Retry is the policy of the route, or else of its virtual host. nil: the
	// RPC is not retried. Set only beside a Forward. Source: gRFC A44.
	Retry *RetryPolicy
	// HashPolicies say what the hash of an RPC is made of, see Hash. Set only
	// beside a Forward. Source: gRFC A42.
	HashPolicies []HashPolicy
	// Mirrors are the copies to make of an RPC: the policies of the route, or
	// else of its virtual host, or else of the RouteConfiguration. Set only
	// beside a Forward.
	Mirrors []Mirror
	// Rewrite changes method and authority on their way to the backend. nil:
	// both stay. Set only beside a Forward; see RewritePath and
	// RewriteAuthority.
	Rewrite *Rewrite
	// Headers edits the metadata of RPCs for which the WeightedCluster does
	// not bring edits of its own. nil: nothing to do. See HeadersFor.
	Headers *HeaderMutations
	// Overrides is Route.typed_per_filter_config.
	Overrides FilterOverrides
}

// Action is what a route does with an RPC: *Forward, *DirectResponse,
// *Redirect or *Unroutable.
type Action interface{ isAction() }

func (*Forward) isAction()        {}
func (*DirectResponse) isAction() {}
func (*Redirect) isAction()       {}
func (*Unroutable) isAction()     {}

// Forward sends the RPC to one of the clusters, drawn by weight. Several
// routes may share one.
type Forward struct {
	// Clusters has at least one entry; TotalWeight, the sum of the weights,
	// is at least 1 and fits 32 bits. RouteAction.cluster and cluster_header
	// are one entry of weight 1.
	Clusters    []WeightedCluster
	TotalWeight uint32
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
	// Rewrite does (ClusterWeight.host_rewrite_literal; as in Envoy, where the
	// route has the last word). Empty: not. It is always empty if the server is
	// not a trusted_xds_server.
	Authority string
}

// Cluster returns the cluster that an RPC goes to: Name, or the first value of
// Header, which is empty if the RPC does not have it.
//
// A cluster that a header names is not among VirtualHost.Clusters. Like Envoy,
// which forwards only to clusters it already has, the client does not fetch
// clusters because an RPC asks for them: such an RPC reaches clusters that the
// virtual host names elsewhere, in a route, a weight or a mirror. An RPC whose
// header is missing or names another cluster is to fail with UNAVAILABLE.
func (c *WeightedCluster) Cluster(rpc *matching.RPC) string {
	if c.Header == "" {
		return c.Name
	}
	return rpc.FirstHeader(c.Header)
}

// Unroutable fails matching RPCs with UNAVAILABLE: the route's action is none
// that a gRPC client acts on (gRFC A28: the route is kept, as the first match
// wins).
type Unroutable struct {
	// Reason names the action, for the RPC's error.
	Reason string
}
