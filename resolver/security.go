package resolver

import (
	"github.com/dynxds/dynxds/balancer"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// getsStricter reports whether connections that were made for a version of a Cluster may be less secure
// than the next version asks for, on a channel that obeys it. They must not serve any more then, even if
// there are no others yet. Either version may be nil.
func (g *graph) getsStricter(before, now *xdsresource.Cluster) bool {
	return g.usesXDS && before != nil && now != nil && !now.Security.SatisfiedBy(before.Security)
}

// sameConnections reports whether the connections of two versions of a Cluster are made in the
// same way: with the same security, and with or without proxies. before may be nil.
func (g *graph) sameConnections(before, now *xdsresource.Cluster) bool {
	return before == nil || before.HTTPConnect == now.HTTPConnect && (!g.usesXDS || before.Security.Key() == now.Security.Key())
}

// underSecured reports whether a published state of a cluster sends RPCs over connections that are less secure
// than another part of the graph knows that the cluster, or the one under it that serves, asks for.
func (g *graph) underSecured(name string, published *balancer.ClusterState) bool {
	if !g.usesXDS {
		return false
	}
	if published.Underlying == nil {
		return published.Cluster != nil && g.knownStricter(name, published.Cluster)
	}
	for under, s := range published.Underlying.States.All {
		if g.underSecured(under, s) {
			return true
		}
	}
	return false
}

// knownStricter reports whether any part of the graph knows a stricter version of a Cluster.
func (g *graph) knownStricter(name string, than *xdsresource.Cluster) bool {
	for _, n := range g.clusters {
		if m := n.member(name); m != nil && g.getsStricter(than, m.state.Cluster) {
			return true
		}
	}
	return false
}

// endUnderSecured ends the use of outgoing clusters that have failed, and so do not follow the clusters
// under them any more, if one of these gets stricter: before and now are its versions, which may be nil.
func (g *graph) endUnderSecured(before, now *xdsresource.Cluster) {
	if !g.usesXDS || g.next == nil || g.current == nil || now == nil || now.Security == nil || before != nil && !g.getsStricter(before, now) {
		return
	}
	for _, n := range g.clusters {
		published, ok := g.edit().Get(n.name)
		if ok && n.state.Err != nil && published.Err == nil && g.underSecured(n.name, published) {
			g.edit().Set(n.name, n.state)
			g.changed()
		}
	}
}
