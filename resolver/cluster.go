package resolver

import (
	"slices"

	"github.com/dynxds/dynxds/balancer"
	"github.com/dynxds/dynxds/xdsresource"
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
	// partial: not everything in state.Underlying has answered.
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
		m = newMember(n.graph, name, n.update)
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
	return s.Endpoints != nil || s.Err != nil && !g.willSayMore(s.Err)
}

// update takes over what the members know. While something in a new graph of
// clusters has not answered, that which is in use stays and goes on to change.
// Only the first one does not wait: its first cluster may well do without the
// last one. Nor does a Cluster that begins to ask for security, of which that in use
// has none.
func (n *clusterNode) update() {
	s, used, complete := n.next()
	if inUse := n.answered() && n.state.Err == nil; inUse && !complete && !n.asksForSecurity(s) {
		n.become(n.refreshed())
		return
	}
	before := n.answered()
	n.partial = !complete
	for name, m := range n.members {
		if !used[name] {
			m.stop()
			delete(n.members, name)
		}
	}
	if !n.become(s) && n.answered() != before {
		n.graph.clusterChanged(n)
	}
}

// asksForSecurity reports whether the cluster or one in its list has to be secured.
func (n *clusterNode) asksForSecurity(s balancer.ClusterState) bool {
	return n.graph.mustSecure(s.Cluster) ||
		slices.ContainsFunc(s.Underlying, func(u balancer.Underlying) bool { return n.graph.mustSecure(u.State.Cluster) })
}

func (g *graph) mustSecure(c *xdsresource.Cluster) bool { return balancer.MustSecure(g.usesXDS, c) }

// next returns the state that the members give, which of them it is made from,
// and whether all of those have answered.
func (n *clusterNode) next() (s balancer.ClusterState, used map[string]bool, complete bool) {
	root := n.members[n.name].state
	if root.Cluster == nil || root.Cluster.Kind != xdsresource.ClusterAggregate {
		return *root, map[string]bool{n.name: true}, n.graph.isKnown(root)
	}
	w := newWalk(n)
	w.visit(n.name)
	if w.err != nil {
		return balancer.ClusterState{Cluster: root.Cluster, Notes: root.Notes, Err: w.err}, w.seen, true
	}
	return balancer.ClusterState{Cluster: root.Cluster, Notes: (*aggregateNotes)(n.members[n.name].notes), Underlying: w.leaves}, w.seen, w.complete
}

// refreshed returns the state in use with what has become of the clusters in it.
func (n *clusterNode) refreshed() balancer.ClusterState {
	s := *n.state
	s.Underlying = nil
	for _, u := range n.state.Underlying {
		if m := n.members[u.Name]; m != nil && n.graph.isKnown(m.state) {
			u.State = m.state
		}
		s.Underlying = append(s.Underlying, u)
	}
	return s
}

// become reports whether s is another state than the one before.
func (n *clusterNode) become(s balancer.ClusterState) bool {
	if equalStates(&s, n.state) {
		return false
	}
	n.state = &s
	n.graph.clusterChanged(n)
	return true
}

// equalStates compares but for ResolveNow and Notes, which go with the Cluster.
func equalStates(a, b *balancer.ClusterState) bool {
	if a.Cluster != b.Cluster || a.Endpoints != b.Endpoints || len(a.Underlying) != len(b.Underlying) {
		return false
	}
	for i := range a.Underlying {
		if a.Underlying[i] != b.Underlying[i] {
			return false
		}
	}
	return a.Err == b.Err || a.Err != nil && b.Err != nil && a.Err.Error() == b.Err.Error()
}
