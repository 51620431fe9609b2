package resolver

import (
	"errors"
	"fmt"
	"slices"

	"github.com/dynxds/dynxds/balancer"
	"github.com/dynxds/dynxds/internal/pmap"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// clusterNode watches one cluster that RPCs are routed to, and the clusters under it if it is
// an aggregate one. Guarded by the graph's lock.
//
// Nodes do not share members, even for the same cluster: xdsclient requests each resource
// once anyway, and a cycle or fault under one aggregate cluster does not affect others.
type clusterNode struct {
	graph      *graph
	name       string
	generation uint64 // of the latest config that routes to the cluster
	awaited    bool   // that config waits for the first answer of the cluster

	self   *member            // of the cluster itself
	others map[string]*member // of the clusters under it, by name; nil: there were none yet
	// list has the clusters in state.Underlying, if there are any. next, if not nil,
	// replaces it when all of its clusters have answered. others has what they need.
	list, next *leaves
	partial    bool // some of list have not answered since it is in use
	// stale are the members under which the clusters have changed since the last walk. See relist.
	stale []*member

	state *balancer.ClusterState // for the balancer
}

func newClusterNode(g *graph, name string) *clusterNode {
	n := &clusterNode{graph: g, name: name, state: new(balancer.ClusterState)}
	n.self = newMember(g, name, n.memberChanged)
	return n
}

func (n *clusterNode) start() { n.self.start() }

// member returns the member of the given name, or nil.
func (n *clusterNode) member(name string) *member {
	if name == n.name {
		return n.self
	}
	return n.others[name]
}

// startedMember returns the member of the given name, and starts it if it is new.
func (n *clusterNode) startedMember(name string) *member {
	m := n.member(name)
	if m == nil {
		m = newMember(n.graph, name, n.memberChanged)
		if n.others == nil {
			n.others = make(map[string]*member)
		}
		n.others[name] = m
		m.start()
	}
	return m
}

func (n *clusterNode) stop() {
	n.self.stop()
	for _, m := range n.others {
		m.stop()
	}
}

// answered reports whether the outcome of RPCs to the cluster is known.
func (n *clusterNode) answered() bool {
	return n.graph.isKnown(n.state) || n.state.Underlying != nil && !n.partial
}

// isKnown reports whether the endpoints of a cluster, or the lack of them, are known.
func (g *graph) isKnown(s *balancer.ClusterState) bool {
	return s.Endpoints != nil || s.Err != nil && !g.isTransient(s.Err)
}

// memberChanged handles a new state of a member. A change of endpoints costs the same however
// many members there are: the graph is walked again only if the clusters under a member
// have changed.
func (n *clusterNode) memberChanged(m *member, before *balancer.ClusterState) {
	n.graph.endUnderSecured(before.Cluster, m.state.Cluster)
	urgent := n.graph.getsStricter(n.served(m), m.state.Cluster)
	if m.name == n.name || !slices.Equal(under(before), under(m.state)) {
		n.stale = append(n.stale, m)
		if m.name == n.name || urgent {
			n.relist(urgent)
			return
		}
		// The requests for what is new under m leave at once. The list is made when the next
		// snapshot is: a thousand aggregate clusters under another one come one by one, and a walk
		// for each of them would cost the square of their number.
		for _, name := range under(m.state) {
			n.startedMember(name)
		}
		n.graph.relistLater(n)
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

// served returns the version of a member's Cluster that the node's state has, or nil. An error
// that the state does not have may have followed it.
func (n *clusterNode) served(m *member) *xdsresource.Cluster {
	if m.name == n.name {
		return n.state.Cluster
	}
	if n.state.Underlying != nil {
		if s, ok := n.state.Underlying.States.Get(m.name); ok {
			return s.Cluster
		}
	}
	return nil
}

// under returns the clusters under an aggregate cluster, else nil.
func under(s *balancer.ClusterState) []string {
	if s.Cluster == nil || s.Cluster.Kind != xdsresource.ClusterAggregate {
		return nil
	}
	return s.Cluster.Underlying
}

// relist walks the clusters again if those under a member have changed. The old list stays in
// use, and up to date, until all clusters of the new one have answered. The first list does
// not wait, as its first cluster may do without the last one, nor does an urgent change.
func (n *clusterNode) relist(urgent bool) {
	stale, root := n.stale, n.self.state
	if n.stale = nil; len(stale) == 0 {
		return
	}
	if under(root) == nil {
		if n.inUse() && !n.graph.isKnown(root) && !urgent {
			n.setLists(n.list, nil)
			return
		}
		n.setLists(nil, nil)
		n.setState(*root, false)
		return
	}
	w := newWalk(n)
	if err := w.Visit(n.name); err != nil {
		n.setLists(&leaves{seen: w.Heights}, nil)
		n.setState(balancer.ClusterState{Cluster: root.Cluster, Notes: root.Notes,
			Err: errors.New(err.ErrorFor(fmt.Sprintf(" (node id %q)", n.graph.client.Bootstrap().Node.GetId())))}, false)
		return
	}
	l := n.leavesOf(w)
	if n.inUse() && !l.complete() && !urgent {
		n.setLists(n.list, l)
		for _, m := range stale {
			if n.member(m.name) == m {
				n.refresh(m, urgent)
			}
		}
		return
	}
	n.use(l)
}

// inUse reports whether the current state can serve RPCs until there is a new one.
func (n *clusterNode) inUse() bool { return n.answered() && n.state.Err == nil }

// use makes l the list in use.
func (n *clusterNode) use(l *leaves) {
	n.setLists(l, nil)
	var none pmap.Map[*balancer.ClusterState]
	states := none.Edit()
	for _, name := range l.names {
		states.Set(name, n.member(name).state)
	}
	n.setState(balancer.ClusterState{
		Cluster:    n.self.state.Cluster,
		Notes:      (*aggregateNotes)(n.self.notes),
		Underlying: &balancer.Underlying{Names: l.names, States: states.Map()},
	}, !l.complete())
}

// setLists sets the list in use and the next one, and ends the watches of the clusters that neither needs.
func (n *clusterNode) setLists(list, next *leaves) {
	n.list, n.next = list, next
	for name, m := range n.others {
		if !list.needs(name) && !next.needs(name) {
			m.stop()
			delete(n.others, name)
		}
	}
}

// refresh updates the state of a cluster of the list in use. If it becomes unknown, the old
// state stays, unless the change is urgent.
func (n *clusterNode) refresh(m *member, urgent bool) {
	if n.list == nil || !n.list.has(m.name) || n.inUse() && !n.graph.isKnown(m.state) && !urgent {
		return
	}
	s := *n.state
	states := s.Underlying.States.Edit()
	states.Set(m.name, m.state)
	s.Underlying = &balancer.Underlying{Names: s.Underlying.Names, States: states.Map()}
	n.setState(s, n.partial && !n.list.complete())
}

func (n *clusterNode) setState(s balancer.ClusterState, partial bool) {
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

// equalStates ignores ResolveNow and Notes, which belong to the Cluster.
func equalStates(a, b *balancer.ClusterState) bool {
	return a.Cluster == b.Cluster && a.Endpoints == b.Endpoints && a.Underlying.Same(b.Underlying) &&
		(a.Err == b.Err || a.Err != nil && b.Err != nil && a.Err.Error() == b.Err.Error())
}
