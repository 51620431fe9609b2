package resolver

import (
	"github.com/dynxds/dynxds/balancer"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// snapshot returns what the answers so far mean for RPCs: the last snapshot if that is the same, else a new
// one under a new version.
func (g *graph) snapshot() *snapshot {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.build()
	s := &snapshot{config: g.current, accepted: g.accepted, clusters: g.table, err: g.err}
	if last := g.last; s.config != last.config || s.accepted != last.accepted || s.err != last.err || !s.clusters.Same(last.clusters) {
		s.version = versions.Add(1)
		g.last = s
	}
	return g.last
}

// build computes the states of the clusters in use from the answers, of which it only looks at what has changed
// since the last build. A working configuration is replaced only by one that works:
//
//   - new routes wait for the clusters that they add (see route), beside the old routes, which follow their
//     clusters meanwhile. Only the first routes do not wait; the RPCs to their clusters wait one by one in
//     the balancer;
//   - a cluster waits for its endpoints, and an aggregate cluster for the clusters under it: see
//     clusterNode.build, stays and member.update;
//   - a cluster that the control plane has deleted along with its last route serves until the new routes do.
//
// Nothing of that holds for connections that are less secure than the latest version of their Cluster asks for:
// see getsStricter.
func (g *graph) build() {
	if g.closed {
		return // Nothing may be watched again.
	}
	table, dirty := g.table.Edit(), g.dirty
	g.dirty = nil
	for _, n := range dirty {
		if g.clusters[n.name] != n {
			continue
		}
		n.build()
		if g.next != nil && g.answered(n.state) {
			delete(g.next.waits, n.name)
		}
		published, inUse := table.Get(n.name)
		switch {
		case !inUse && (g.current == nil || g.subscribed[n.name] == 0):
		case g.outgoing(n) && published.Err == nil && n.state.Err != nil && !g.underSecured(n.name, published):
			g.dirty = append(g.dirty, n) // The clusters under it may get stricter.
		default:
			table.Set(n.name, n.state)
		}
	}
	if g.next != nil && (len(g.next.waits) == 0 || g.current == nil && !g.patient) {
		g.current, g.next = g.next, nil
		for name, n := range g.clusters {
			if g.needs(n, g.current) {
				table.Set(name, n.state)
			} else {
				table.Delete(name)
			}
		}
		g.unswept = true
	}
	g.table = table.Map()
	if g.unswept {
		g.sweep()
	}
}

// sweep ends the watches that nothing depends on any more, and tells each member what depends on it. What is
// new has begun before, so that no subscription ends and begins again. A control plane may change routes again and again
// without answering for their clusters: those of routes that were replaced while they waited go, too.
func (g *graph) sweep() {
	g.unswept = false
	for _, m := range g.members {
		clear(m.users)
		m.users = m.users[:0]
	}
	for name, n := range g.clusters {
		if _, inUse := g.table.Get(name); !inUse && !g.needs(n, g.latest()) {
			delete(g.clusters, name)
			continue
		}
		n.eachMember(func(m *member) {
			if last := len(m.users) - 1; last < 0 || m.users[last] != n {
				m.users = append(m.users, n)
			}
		})
	}
	for name, m := range g.members {
		if len(m.users) == 0 {
			m.stop()
			delete(g.members, name)
		}
	}
}

// isKnown reports whether the endpoints of a cluster, or the lack of them, are known.
func (g *graph) isKnown(s *balancer.ClusterState) bool {
	return s.Endpoints != nil || s.Err != nil && !g.isTransient(s.Err)
}

// answered reports whether the outcome of RPCs to a cluster is known. For an aggregate cluster, it is for each under it.
func (g *graph) answered(s *balancer.ClusterState) bool {
	if s.Underlying == nil {
		return g.isKnown(s)
	}
	for _, under := range s.Underlying.States.All {
		if !g.isKnown(under) {
			return false
		}
	}
	return true
}

// stays reports whether a state of a cluster stays in use while a new one is not known, unless its security is too weak.
func (g *graph) stays(before, now *balancer.ClusterState) bool {
	return g.answered(before) && !g.isKnown(now) && !g.getsStricter(before.Cluster, now.Cluster)
}

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
// than the latest version of the cluster, or of the one under it that serves, asks for.
func (g *graph) underSecured(name string, published *balancer.ClusterState) bool {
	if published.Underlying == nil {
		m := g.members[name]
		return m != nil && g.getsStricter(published.Cluster, m.state.Cluster)
	}
	for under, s := range published.Underlying.States.All {
		if g.underSecured(under, s) {
			return true
		}
	}
	return false
}
