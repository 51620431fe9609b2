package resolver

import (
	"errors"

	"github.com/dynxds/dynxds/balancer"
	"github.com/dynxds/dynxds/internal/pmap"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/xdsclient"
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

// build computes the table of the clusters in use from the table before and from what the answers say, of which it only
// looks at what has changed since the last build. New routes wait for the clusters that they add (see route), beside the
// old routes, which follow their clusters meanwhile. Only the first routes do not wait; the RPCs to their clusters wait one
// by one in the balancer. What is in use of a cluster waits likewise, for what replaces it: see keep.
func (g *graph) build() {
	if g.closed {
		return // Nothing may be watched again.
	}
	for c, due := range g.resolved {
		if !due {
			continue
		}
		delete(g.resolved, c)
		if c.dns != nil {
			c.update()
		}
	}
	table, dirty := g.table.Edit(), g.dirty
	g.dirty = nil
	for _, c := range dirty {
		changed, rewalk := c.changed, c.rewalk
		c.changed, c.rewalk = nil, false
		_, inUse := table.Get(c.name)
		if g.clusters[c.name] != c || !inUse && !g.inNewest(c) {
			continue
		}
		if rewalk {
			c.walkUnder()
		}
		before := c.built
		c.built = g.resolve(c, before, changed)
		g.unswept = g.unswept || before != nil && before.Underlying != nil && !sameList(before, c.built)
		if inUse || g.current != nil && g.subscribed[c.name] > 0 {
			table.Set(c.name, c.built)
		}
		if g.next != nil && g.next.waits[c.name] && g.answered(c.built) {
			delete(g.next.waits, c.name)
		}
	}
	if g.next != nil && (len(g.next.waits) == 0 || g.current == nil && !g.patient) {
		g.current, g.next = g.next, nil
		for name, c := range g.clusters {
			if g.inNewest(c) {
				table.Set(name, c.built)
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

// sweep ends the watches that nothing depends on any more, and tells each cluster what depends on it. What is
// new has begun before, so that no subscription ends and begins again. A control plane may change routes again and again
// without answering for their clusters: those of routes that were replaced while they waited go, too.
func (g *graph) sweep() {
	g.unswept = false
	for _, c := range g.clusters {
		clear(c.users)
		c.users = c.users[:0]
	}
	for _, c := range g.clusters {
		if !g.isRouted(c) {
			c.walk, c.built = nil, nil
			continue
		}
		c.eachNeeded(func(needed *cluster) {
			if last := len(needed.users) - 1; last < 0 || needed.users[last] != c {
				needed.users = append(needed.users, c)
			}
		})
	}
	for name, c := range g.clusters {
		if len(c.users) == 0 {
			c.stop()
			delete(g.clusters, name)
		}
	}
}

// eachNeeded calls f with the clusters that one that is routed to depends on, with some of them several times: those that
// the newest walk has found, and those that are in use.
func (c *cluster) eachNeeded(f func(*cluster)) {
	f(c)
	if c.walk != nil {
		for _, visited := range c.walk.visited {
			f(visited)
		}
	}
	if c.built != nil && c.built.Underlying != nil {
		for _, name := range c.built.Underlying.Names {
			f(c.graph.clusters[name])
		}
	}
}

// resolve returns the state of a cluster that RPCs are routed to, by what is in use, nil for nothing, by what the answers
// say, and by the clusters that have changed.
func (g *graph) resolve(c *cluster, before *balancer.ClusterState, changed []string) *balancer.ClusterState {
	if before != nil && before.Err != nil {
		before = nil
	}
	now, outgoing := c.state, g.outgoing(c)
	if c.walk != nil {
		now = g.fill(c.walk.state, before, changed, outgoing)
	}
	s := g.keep(before, now, outgoing)
	if s == before {
		return g.fill(before, before, changed, outgoing)
	}
	return s
}

// fill returns an aggregate cluster with the states of the clusters in its list, and any other as it is. A change of endpoints
// costs the same however many clusters there are: only another list than that of before is a reason to look at all of them.
func (g *graph) fill(s, before *balancer.ClusterState, changed []string, outgoing bool) *balancer.ClusterState {
	if s == nil || s.Underlying == nil {
		return s
	}
	var old pmap.Map[*balancer.ClusterState]
	if before != nil && before.Underlying != nil {
		old = before.Underlying.States
	}
	names, states, same := s.Underlying.Names, pmap.Map[*balancer.ClusterState]{}.Edit(), sameList(before, s)
	if same {
		names, states = changed, old.Edit()
	}
	for _, name := range names {
		if was, listed := old.Get(name); listed || !same {
			states.Set(name, g.keep(was, g.clusters[name].state, outgoing))
		}
	}
	u := &balancer.Underlying{Names: s.Underlying.Names, States: states.Map()}
	if same && u.States.Same(old) {
		return before
	}
	return &balancer.ClusterState{Cluster: s.Cluster, Notes: s.Notes, Underlying: u}
}

// sameList reports whether two states have the same list of clusters under an aggregate one. a may be nil.
func sameList(a, b *balancer.ClusterState) bool {
	return a != nil && a.Underlying != nil && b.Underlying != nil && a.Underlying.SameNames(b.Underlying)
}

// keep returns the state that follows one in use, nil for none, when the answers say now. What works stays in use until what
// replaces it is settled: the old endpoints with the new version of the Cluster if connections are made in the same way,
// else both. But connections that are less secure than the newest version of the Cluster asks for must not serve any more,
// even if there are no others yet.
func (g *graph) keep(before, now *balancer.ClusterState, outgoing bool) *balancer.ClusterState {
	switch {
	case before == nil || sameList(before, now) || g.settled(now, outgoing) || !g.answered(before) || g.getsStricter(before.Cluster, now.Cluster):
		return now
	case before.Endpoints == nil || now.Cluster == nil || now.Cluster == before.Cluster || under(now) != nil || !g.sameConnections(before.Cluster, now.Cluster):
		return before
	default:
		s := *now
		s.Endpoints, s.Err = before.Endpoints, nil
		return &s
	}
}

// settled reports whether a state replaces any other. An error does not if the server is unreachable or silent, which has not
// said that there is nothing, or if the cluster is outgoing: a control plane deletes it along with its last route.
func (g *graph) settled(s *balancer.ClusterState, outgoing bool) bool {
	var e *xdsclient.Error
	silent := errors.As(s.Err, &e) && e.Kind == xdsclient.KindTimeout
	return g.answered(s) && (s.Err == nil || !outgoing && !silent)
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

// getsStricter reports whether connections that were made for a version of a Cluster may be less secure
// than the next version asks for, on a channel that obeys it. Either version may be nil.
func (g *graph) getsStricter(before, now *xdsresource.Cluster) bool {
	return g.usesXDS && before != nil && now != nil && !now.Security.SatisfiedBy(before.Security)
}

// sameConnections reports whether the connections of two versions of a Cluster are made in the
// same way: with the same security, and with or without proxies.
func (g *graph) sameConnections(before, now *xdsresource.Cluster) bool {
	return before.HTTPConnect == now.HTTPConnect && (!g.usesXDS || before.Security.Key() == now.Security.Key())
}
