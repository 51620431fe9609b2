package resolver

import (
	"errors"
	"fmt"

	"github.com/dynxds/dynxds/balancer"
	"github.com/dynxds/dynxds/internal/pmap"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// clusterNode is one cluster that RPCs are routed to, with the clusters under it if it is an aggregate
// one. Guarded by the graph's lock.
type clusterNode struct {
	graph      *graph
	name       string
	generation uint64 // of the latest config that routes to the cluster

	self    *member            // of the cluster itself
	others  map[string]*member // of the clusters under it, by name; nil: there were none yet
	changed []*member          // since the last build
	relist  bool               // so have the clusters under it
	// list has the clusters in state.Underlying, if there are any. next, if not nil,
	// replaces it when all of its clusters have answered. others has what they need.
	list, next *leaves
	partial    bool // some of list have not answered since it is in use

	state *balancer.ClusterState // for the balancer
}

// leaves are the clusters with endpoints under an aggregate cluster. It may be nil.
type leaves struct {
	names []string        // in order of preference
	waits map[string]bool // those of names that have not answered
	seen  map[string]int  // all clusters that the walk visited, and their heights: 1 for those of names
}

func newClusterNode(g *graph, name string) *clusterNode {
	n := &clusterNode{graph: g, name: name}
	n.self = g.acquire(name, n)
	n.state = n.self.state
	n.memberChanged(n.self, true)
	return n
}

func (n *clusterNode) stop() {
	n.setLists(nil, nil)
	n.self.release(n)
}

// member returns the member of the given name, or nil.
func (n *clusterNode) member(name string) *member {
	if name == n.name {
		return n.self
	}
	return n.others[name]
}

// acquire returns the member of the given name, which the node watches from then on.
func (n *clusterNode) acquire(name string) *member {
	m := n.member(name)
	if m == nil {
		m = n.graph.acquire(name, n)
		if n.others == nil {
			n.others = make(map[string]*member)
		}
		n.others[name] = m
	}
	return m
}

// memberChanged records that a member has a new state. The requests for the clusters under the member leave at
// once; the list is made again by the next build, once for all of a thousand aggregate clusters that come one by one.
func (n *clusterNode) memberChanged(m *member, relist bool) {
	if relist {
		n.relist = true
		for _, name := range under(m.state) {
			n.acquire(name)
		}
	}
	n.changed = append(n.changed, m)
	if len(n.changed) == 1 {
		n.graph.dirty = append(n.graph.dirty, n)
	}
}

// under returns the clusters under an aggregate cluster, else nil.
func under(s *balancer.ClusterState) []string {
	if s.Cluster == nil || s.Cluster.Kind != xdsresource.ClusterAggregate {
		return nil
	}
	return s.Cluster.Underlying
}

// answered reports whether the outcome of RPCs to the cluster is known.
func (n *clusterNode) answered() bool {
	return n.graph.isKnown(n.state) || n.state.Underlying != nil && !n.partial
}

// inUse reports whether the current state can serve RPCs until there is a new one.
func (n *clusterNode) inUse() bool { return n.answered() && n.state.Err == nil }

// build computes the state from the members that have changed. What can serve RPCs is replaced, as a whole and in
// each of its parts, by what is known, unless its security is too weak. The first list of clusters does not
// wait, as its first cluster may do without the last one. A change of endpoints costs the same however many
// members there are: only another list is a reason to look at all of them.
func (n *clusterNode) build() {
	changed, relist := n.changed, n.relist
	n.changed, n.relist = nil, false
	root := n.self.state
	switch {
	case under(root) == nil:
		if n.replaces(n.state, root) {
			n.setLists(nil, nil)
			n.state, n.partial = root, false
			return
		}
		n.setLists(n.list, nil)
	case relist:
		w := newWalk(n)
		if err := w.Visit(n.name); err != nil {
			n.setLists(&leaves{waits: make(map[string]bool), seen: w.Heights}, nil)
			n.state = &balancer.ClusterState{Cluster: root.Cluster, Notes: root.Notes,
				Err: errors.New(err.ErrorFor(fmt.Sprintf(" (node id %q)", n.graph.client.Bootstrap().Node.GetId())))}
			return
		}
		n.setLists(n.list, n.newLeaves(w))
	}
	for _, m := range changed {
		known := n.graph.isKnown(m.state)
		n.list.answer(m.name, known)
		n.next.answer(m.name, known)
	}
	if n.next != nil && (len(n.next.waits) == 0 || !n.inUse()) {
		n.use(n.next)
		return
	}
	n.refresh(changed)
}

// replaces reports whether a new state of a cluster takes the place of the old one, of the node or of a cluster in
// its list.
func (n *clusterNode) replaces(before, now *balancer.ClusterState) bool {
	return !n.inUse() || n.graph.isKnown(now) || n.graph.getsStricter(before.Cluster, now.Cluster)
}

// use makes l the list in use.
func (n *clusterNode) use(l *leaves) {
	n.setLists(l, nil)
	states := pmap.Map[*balancer.ClusterState]{}.Edit()
	for _, name := range l.names {
		states.Set(name, n.member(name).state)
	}
	n.partial = len(l.waits) > 0
	n.state = &balancer.ClusterState{
		Cluster:    n.self.state.Cluster,
		Notes:      (*aggregateNotes)(n.self),
		Underlying: &balancer.Underlying{Names: l.names, States: states.Map()},
	}
}

// refresh updates the clusters of the list in use.
func (n *clusterNode) refresh(changed []*member) {
	before := n.state.Underlying
	if before == nil {
		return
	}
	states := before.States.Edit()
	for _, m := range changed {
		if s, ok := states.Get(m.name); ok && n.replaces(s, m.state) {
			states.Set(m.name, m.state)
		}
	}
	n.partial = n.partial && len(n.list.waits) > 0
	if now := states.Map(); !now.Same(before.States) {
		s := *n.state
		s.Underlying = &balancer.Underlying{Names: before.Names, States: now}
		n.state = &s
	}
}

// setLists sets the list in use and the next one, and ends the watches of the clusters that neither needs.
func (n *clusterNode) setLists(list, next *leaves) {
	n.list, n.next = list, next
	for name, m := range n.others {
		if !list.needs(name) && !next.needs(name) {
			delete(n.others, name)
			m.release(n)
		}
	}
}

// newWalk returns a walk through the clusters under n. It starts members that are missing.
func newWalk(n *clusterNode) *xdsresource.UnderlyingWalk {
	return &xdsresource.UnderlyingWalk{Under: func(name string) []string { return under(n.acquire(name).state) }}
}

// newLeaves returns the leaves that a walk has found.
func (n *clusterNode) newLeaves(w *xdsresource.UnderlyingWalk) *leaves {
	l := &leaves{names: w.Leaves, waits: make(map[string]bool), seen: w.Heights}
	for _, name := range l.names {
		l.answer(name, n.graph.isKnown(n.member(name).state))
	}
	return l
}

// answer records whether a cluster has answered, if it is one of l.
func (l *leaves) answer(name string, answered bool) {
	switch {
	case l == nil || l.seen[name] != 1:
	case answered:
		delete(l.waits, name)
	default:
		l.waits[name] = true
	}
}

// needs reports whether the list depends on a cluster, which may be an aggregate one.
func (l *leaves) needs(name string) bool {
	if l == nil {
		return false
	}
	_, seen := l.seen[name]
	return seen
}
