package resolver

import (
	"errors"
	"fmt"
	"slices"

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

	self    *member   // of the cluster itself
	changed []*member // since the last build
	relist  bool      // so have the clusters under it
	// list has the clusters in state.Underlying, if there are any. next, if not nil,
	// replaces it when all of its clusters have answered.
	list, next *underList

	state *balancer.ClusterState // for the balancer
}

// underList has the clusters under an aggregate cluster, as a walk has found them.
type underList struct {
	names   []string           // of those with endpoints, in order of preference
	members map[string]*member // of all that the walk visited, aggregate clusters too
}

func newClusterNode(g *graph, name string) *clusterNode {
	n := &clusterNode{graph: g, name: name, self: g.member(name)}
	n.state = n.self.state
	n.memberChanged(n.self, true)
	return n
}

// memberChanged records that a member has a new state. The list is made again by the next build, once for
// all of a thousand aggregate clusters that come one by one.
func (n *clusterNode) memberChanged(m *member, relist bool) {
	n.relist = n.relist || relist
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

// build computes the state from the members that have changed. The first list of clusters does not
// wait, as its first cluster may do without the last one. A change of endpoints costs the same however many
// members there are: only another list is a reason to look at all of them.
func (n *clusterNode) build() {
	changed, relist := n.changed, n.relist
	n.changed, n.relist = nil, false
	root := n.self.state
	switch {
	case under(root) == nil:
		if n.state.Err != nil || !n.graph.stays(n.state, root) {
			n.setLists(nil, nil)
			n.state = root
			return
		}
		n.setLists(n.list, nil)
	case relist:
		next, err := n.walk()
		if err != nil {
			n.setLists(next, nil)
			n.state = &balancer.ClusterState{Cluster: root.Cluster, Notes: root.Notes,
				Err: errors.New(err.ErrorFor(fmt.Sprintf(" (node id %q)", n.graph.client.Bootstrap().Node.GetId())))}
			return
		}
		n.setLists(n.list, next)
	}
	if n.next != nil && (n.state.Err != nil || !n.graph.answered(n.state) || n.answers(n.next)) {
		n.use(n.next)
		return
	}
	n.refresh(changed)
}

// answers reports whether all clusters of a list have answered.
func (n *clusterNode) answers(l *underList) bool {
	return !slices.ContainsFunc(l.names, func(name string) bool { return !n.graph.isKnown(l.members[name].state) })
}

// use makes l the list in use.
func (n *clusterNode) use(l *underList) {
	n.setLists(l, nil)
	states := pmap.Map[*balancer.ClusterState]{}.Edit()
	for _, name := range l.names {
		states.Set(name, l.members[name].state)
	}
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
		if s, ok := states.Get(m.name); ok && !n.graph.stays(s, m.state) {
			states.Set(m.name, m.state)
		}
	}
	if now := states.Map(); !now.Same(before.States) {
		s := *n.state
		s.Underlying = &balancer.Underlying{Names: before.Names, States: now}
		n.state = &s
	}
}

// setLists sets the list in use and the next one.
func (n *clusterNode) setLists(list, next *underList) {
	n.graph.unswept = n.graph.unswept || list != n.list || next != n.next
	n.list, n.next = list, next
}

// walk lists the clusters under n, and starts to watch those that are missing. After an error it returns those
// that it has visited.
func (n *clusterNode) walk() (*underList, *xdsresource.UnderlyingError) {
	l := &underList{members: make(map[string]*member)}
	w := xdsresource.UnderlyingWalk{Under: func(name string) []string {
		m := n.graph.member(name)
		l.members[name] = m
		return under(m.state)
	}}
	err := w.Visit(n.name)
	l.names = w.Leaves
	return l, err
}

// eachMember calls f with the members that the cluster depends on, with some of them twice.
func (n *clusterNode) eachMember(f func(*member)) {
	f(n.self)
	for _, l := range []*underList{n.list, n.next} {
		if l != nil {
			for _, m := range l.members {
				f(m)
			}
		}
	}
}
