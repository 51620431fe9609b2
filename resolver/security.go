package resolver

import (
	"github.com/dynxds/dynxds/balancer"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// beginsToAsk reports whether a Cluster, which may be nil, asks for security and did not
// before, on a channel that obeys it. The old connections are less secure, and must not serve
// until the new ones can.
func (g *graph) beginsToAsk(before, now *xdsresource.Cluster) bool {
	return g.usesXDS && before != nil && before.Security == nil && now != nil && now.Security != nil
}

// sameConnections reports whether the connections of two versions of a Cluster are made in the
// same way: with the same security, and with or without proxies. before may be nil.
func (g *graph) sameConnections(before, now *xdsresource.Cluster) bool {
	return before == nil || before.HTTPConnect == now.HTTPConnect && (!g.usesXDS || before.Security.Key() == now.Security.Key())
}

// inPlaintext reports whether a published state of a cluster sends RPCs in plaintext to that
// cluster, or to one under it, of which another part of the graph knows that it asks for security.
func (g *graph) inPlaintext(name string, published *balancer.ClusterState) bool {
	if !g.usesXDS {
		return false
	}
	if published.Underlying == nil {
		return published.Cluster != nil && published.Cluster.Security == nil && g.asksForSecurity(name)
	}
	for under, s := range published.Underlying.States.All {
		if g.inPlaintext(under, s) {
			return true
		}
	}
	return false
}

// asksForSecurity reports whether a Cluster asks for security as far as any part of the graph knows.
func (g *graph) asksForSecurity(name string) bool {
	for _, n := range g.clusters {
		if m := n.member(name); m != nil && m.state.Cluster != nil && m.state.Cluster.Security != nil {
			return true
		}
	}
	return false
}

// endPlaintext ends the use of outgoing clusters that have failed, and so do not follow the clusters
// under them any more, if one of these begins to ask for security: before and now are its versions,
// which may be nil.
func (g *graph) endPlaintext(before, now *xdsresource.Cluster) {
	if !g.usesXDS || g.next == nil || g.current == nil || now == nil || now.Security == nil || before != nil && before.Security != nil {
		return
	}
	for _, n := range g.clusters {
		published, ok := g.edit().Get(n.name)
		if ok && n.state.Err != nil && published.Err == nil && g.inPlaintext(n.name, published) {
			g.edit().Set(n.name, n.state)
			g.changed()
		}
	}
}
