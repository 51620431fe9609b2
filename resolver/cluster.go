package resolver

import (
	"slices"

	"github.com/dynxds/dynxds/balancer"
	"github.com/dynxds/dynxds/internal/pmap"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// clusterNode follows one cluster that RPCs are routed to, and the clusters under
// it if it is an aggregate one. Guarded by the graph's lock.
//
// Nodes share no members, not even where they follow the same clusters: the
// transport asks for each resource once anyway, and a cycle or a fault in the
// graph of one aggregate cluster is none of the others' business.
type clusterNode struct {
	graph *graph
	name  string
	// generation is that of the latest config which routes to the cluster.
	generation uint64
	// awaited: that config waits for the first answer of the cluster.
	awaited bool

	// members has the cluster itself and what is under it.
	members map[string]*member
	// list has the clusters in state.Underlying; nil unless there are any. next is what
	// takes its place when everything in it has answered; nil if there is no such.
	list, next *leaves
	// partial: not everything in list had answered when it came into use, or has since.
	partial bool

	// state is what the balancer gets to see.
	state *balancer.ClusterState
}

func newClusterNode(g *graph, name string) *clusterNode {
	return &clusterNode{graph: g, name: name, members: make(map[string]*member), state: new(balancer.ClusterState)}
}

func (n *clusterNode) start() { n.member(n.name) }

// member returns the member of the given name, which it starts to follow if it
// is new.
func (n *clusterNode) member(name string) *member {
	m := n.members[name]
	if m == nil {
		m = newMember(n.graph, name, n.memberChanged)
		n.members[name] = m
		m.start()
	}
	return m
}

func (n *clusterNode) stop() {
	for _, m := range n.members {
		m.stop()
	}
}

// answered reports whether it is known what RPCs to the cluster can expect.
func (n *clusterNode) answered() bool {
	return n.graph.isKnown(n.state) || n.state.Underlying != nil && !n.partial
}

// isKnown reports whether it is known what RPCs to a cluster with endpoints can
// expect.
func (g *graph) isKnown(s *balancer.ClusterState) bool {
	return s.Endpoints != nil || s.Err != nil && !g.isTransient(s.Err)
}

// memberChanged takes over what a member knows; before is what it knew. What is known
// of a cluster with endpoints costs the same however many others there are: only if
// there are other clusters under one is the graph of them walked again.
func (n *clusterNode) memberChanged(m *member, before *balancer.ClusterState) {
	urgent := n.graph.beginsToAsk(before.Cluster, m.state.Cluster)
	if m.name == n.name || !slices.Equal(under(before), under(m.state)) {
		n.rebuild(m, urgent)
		return
	}
	known := n.graph.isKnown(m.state)
	n.list.answer(m.name, known)
	n.next.answer(m.name, known)
	if n.next.complete() {
		n.use(n.next)
		return
	}
	n.refresh(m, urgent)
}

// under returns what is under the cluster, nil unless it is an aggregate one.
func under(s *balancer.ClusterState) []string {
	if s.Cluster == nil || s.Cluster.Kind != xdsresource.ClusterAggregate {
		return nil
	}
	return s.Cluster.Underlying
}

// beginsToAsk reports whether a Cluster, which may be nil, asks for security and did not
// before, on a channel that obeys it. What serves it must not go on until the new one can,
// since that is less secure.
func (g *graph) beginsToAsk(before, now *xdsresource.Cluster) bool {
	return g.usesXDS && before != nil && before.Security == nil && now != nil && now.Security != nil
}

// sameSecurity reports whether the connections of two versions of a Cluster are secured in the
// same way; before may be nil.
func (g *graph) sameSecurity(before, now *xdsresource.Cluster) bool {
	return !g.usesXDS || before == nil || before.Security.Key() == now.Security.Key()
}

// rebuild walks the graph of clusters again, as m leads to others. While something in
// the new one has not answered, that which is in use stays and goes on to change. Only
// the first one does not wait: its first cluster may well do without the last one. Nor
// does an urgent change.
func (n *clusterNode) rebuild(m *member, urgent bool) {
	root := n.members[n.name].state
	if under(root) == nil {
		if n.inUse() && !n.graph.isKnown(root) && !urgent {
			n.next = nil
			return
		}
		n.list, n.next = nil, nil
		n.become(*root, map[string]bool{n.name: true}, false)
		return
	}
	w := newWalk(n)
	w.visit(n.name)
	switch {
	case w.err != nil:
		n.list, n.next = nil, nil
		n.become(balancer.ClusterState{Cluster: root.Cluster, Notes: root.Notes, Err: w.err}, w.seen, false)
	case n.inUse() && !w.leaves.complete() && !urgent:
		n.next = w.leaves
		n.refresh(m, urgent)
	default:
		n.use(w.leaves)
	}
}

// inUse reports whether there is something to go on with until there is a successor.
func (n *clusterNode) inUse() bool { return n.answered() && n.state.Err == nil }

// use puts a list into use.
func (n *clusterNode) use(l *leaves) {
	n.list, n.next = l, nil
	var none pmap.Map[*balancer.ClusterState]
	states := none.Edit()
	for _, name := range l.names {
		states.Set(name, n.members[name].state)
	}
	n.become(balancer.ClusterState{
		Cluster:    n.members[n.name].state.Cluster,
		Notes:      (*aggregateNotes)(n.members[n.name].notes),
		Underlying: &balancer.Underlying{Names: l.names, States: states.Map()},
	}, l.seen, !l.complete())
}

// refresh takes over what has become of a cluster of the list in use. One that has
// answered stays what it was if it is not known any more what it is, unless that is urgent.
func (n *clusterNode) refresh(m *member, urgent bool) {
	if n.list == nil || !n.list.has(m.name) || n.inUse() && !n.graph.isKnown(m.state) && !urgent {
		return
	}
	s := *n.state
	states := s.Underlying.States.Edit()
	states.Set(m.name, m.state)
	s.Underlying = &balancer.Underlying{Names: s.Underlying.Names, States: states.Map()}
	n.become(s, nil, n.partial && !n.list.complete())
}

// become makes s the state. seen has the members that it needs; nil: all of them.
func (n *clusterNode) become(s balancer.ClusterState, seen map[string]bool, partial bool) {
	if seen != nil {
		for name, m := range n.members {
			if !seen[name] {
				m.stop()
				delete(n.members, name)
			}
		}
	}
	before := n.answered()
	changed := !equalStates(&s, n.state)
	n.partial = partial
	if changed {
		n.state = &s
	}
	if changed || n.answered() != before {
		n.graph.clusterChanged(n)
	}
}

// equalStates compares but for ResolveNow and Notes, which go with the Cluster.
func equalStates(a, b *balancer.ClusterState) bool {
	return a.Cluster == b.Cluster && a.Endpoints == b.Endpoints && a.Underlying.Same(b.Underlying) &&
		(a.Err == b.Err || a.Err != nil && b.Err != nil && a.Err.Error() == b.Err.Error())
}
