package resolver

import (
	"maps"
	"slices"

	"github.com/dynxds/dynxds/balancer"
	"github.com/dynxds/dynxds/internal/pmap"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/xdsclient"
)

// snapshot returns what the answers so far mean for RPCs: the last snapshot if that is the same, else a new
// one under a new version. For patient, see build.
func (g *graph) snapshot(patient bool) *snapshot {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.build(patient)
	s := &snapshot{config: g.current, accepted: g.accepted, clusters: g.table, err: g.err}
	if last := g.last; s.config != last.config || s.accepted != last.accepted || s.err != last.err || !s.clusters.Same(last.clusters) {
		s.version = versions.Add(1)
		g.last = s
	}
	return g.last
}

// build computes the configuration and its clusters from the answers and from what was in use before, and ends the watches that
// nothing needs any more. What is new has begun before, so that no subscription ends and begins again. It visits the touched clusters,
// or every cluster, most of which it finds unchanged by comparing pointers.
//
// New routes wait for the clusters that they add (see route), beside the old routes, which follow their clusters meanwhile. Only the
// first routes do not wait, unless the channel is patient because DNS serves it; the RPCs to their clusters wait one by one in the
// balancer. What is in use of a cluster waits likewise, for what replaces it: see keep.
func (g *graph) build(patient bool) {
	if g.closed {
		return // Nothing may be watched again.
	}
	visited := slices.Values(g.touched)
	g.touched = nil
	if g.whole {
		g.resolveAll(patient)
		visited = maps.Values(g.clusters)
	}
	table := g.table.Edit()
	for c := range visited {
		if !g.whole {
			g.resolve(c, false)
		} else if c.routed != g.builds {
			c.walk, c.built, c.inUse = nil, nil, false
			if c.needed != g.builds {
				c.stop()
				delete(g.clusters, c.name)
			}
		}
		switch {
		case c.inUse && c.shown != c.built:
			c.shown = c.built
			table.Set(c.name, c.built)
		case !c.inUse && c.shown != nil:
			c.shown = nil
			table.Delete(c.name)
		}
	}
	g.table = table.Map()
	g.whole = g.next != nil
}

// resolveAll is the part of a build that decides between the configurations, and resolves their clusters.
func (g *graph) resolveAll(patient bool) {
	g.builds++
	if g.next != nil {
		g.eachRouted(g.next, func(c *cluster) { g.resolve(c, false) })
		g.next.waits = slices.DeleteFunc(g.next.waits, func(c *cluster) bool { return g.answered(c.built) })
		if len(g.next.waits) == 0 || g.current == nil && !patient {
			g.current, g.next = g.next, nil
			g.current.waits = nil
		}
	}
	g.eachRouted(g.current, func(c *cluster) {
		g.resolve(c, g.next != nil)
		c.inUse = true
	})
}

// eachRouted calls f with the clusters that a configuration, nil for none, routes RPCs to, and with those that its plugins name.
func (g *graph) eachRouted(c *config, f func(*cluster)) {
	if c == nil {
		return
	}
	for _, c := range c.clusters {
		f(c)
	}
	for name := range g.subscribed {
		f(g.cluster(name))
	}
}

// resolve computes what RPCs to a cluster get, once in a build. A cluster is outgoing if it is in use only until next replaces
// current.
func (g *graph) resolve(c *cluster, outgoing bool) {
	if c.routed == g.builds {
		return
	}
	c.routed = g.builds
	before, now := c.built, c.answer()
	if before == now {
		return
	}
	if before != nil && before.Err != nil {
		before = nil
	}
	if under(now) != nil {
		now = g.fill(c.walkUnder(), before, outgoing)
	} else {
		c.walk = nil
	}
	if before != nil && !before.SameList(now) {
		before = g.fill(before, before, outgoing)
	}
	s := g.keep(before, now, outgoing)
	if s == before && s.Underlying != nil {
		for _, name := range s.Underlying.Names {
			g.clusters[name].needed = g.builds
		}
	}
	if c.built == nil || !same(c.built, s) {
		c.built = s
	}
}

// fill returns an aggregate cluster with the states of the clusters in its list, each of which follows the one in use, and any
// other cluster as it is.
func (g *graph) fill(s, before *balancer.ClusterState, outgoing bool) *balancer.ClusterState {
	if s.Underlying == nil {
		return s
	}
	u := &balancer.Underlying{Names: s.Underlying.Names}
	var old pmap.Map[*balancer.ClusterState]
	if before != nil && before.Underlying != nil {
		old = before.Underlying.States
	}
	states := u.States.Edit()
	unchanged := before.SameList(s)
	if unchanged {
		states = old.Edit()
	}
	for _, name := range u.Names {
		was, _ := old.Get(name)
		if now := g.clusters[name].answer(); was != now || !unchanged {
			states.Set(name, g.keep(was, now, outgoing))
		}
	}
	u.States = states.Map()
	return &balancer.ClusterState{Cluster: s.Cluster, Notes: s.Notes, Underlying: u}
}

// keep returns the state that follows one in use, nil for none, when the answers say now. What works stays in use until what
// replaces it is settled: the version of the Cluster with its endpoints. RPCs that wait for an outgoing cluster wait on when it
// is deleted: the next routes may serve them. But connections that are less secure than the newest version of the Cluster asks
// for must not serve any more, even if there are no others yet.
//
// It is called again with its own result: that has to be the same again.
func (g *graph) keep(before, now *balancer.ClusterState, outgoing bool) *balancer.ClusterState {
	switch {
	case before == nil || before.SameList(now) || g.settled(now, outgoing) || g.getsStricter(before.Cluster, now.Cluster):
		return now
	case g.answered(before) || outgoing && g.answered(now):
		return before
	default:
		return now
	}
}

// settled reports whether a state replaces any other. An error does not if the server is unreachable or silent, which has not
// said that there is nothing, or if the cluster is outgoing: a control plane deletes it along with its last route.
func (g *graph) settled(s *balancer.ClusterState, outgoing bool) bool {
	return g.answered(s) && (s.Err == nil || !outgoing && !isOfKind(s.Err, xdsclient.KindTimeout))
}

// answered reports whether the outcome of RPCs to a cluster is known: its endpoints, or the lack of them, and for an aggregate cluster
// those of each under it.
func (g *graph) answered(s *balancer.ClusterState) bool {
	if s.Underlying == nil {
		return s.Endpoints != nil || s.Err != nil && !g.isTransient(s.Err)
	}
	for _, under := range s.Underlying.States.All {
		if !g.answered(under) {
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
