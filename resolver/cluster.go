package resolver

import (
	"github.com/dynxds/dynxds/balancer"
	"github.com/dynxds/dynxds/xdsresource"
)

// clusterNode follows one cluster: its Cluster, and the ClusterLoadAssignment
// that this names. Guarded by the graph's lock.
type clusterNode struct {
	graph *graph
	name  string
	// generation is that of the latest config which routes to the cluster.
	generation uint64
	// awaited: that config waits for the first answer of the cluster.
	awaited bool

	cds     *watch[*xdsresource.Cluster]
	cluster *xdsresource.Cluster
	eds     *watch[*xdsresource.Endpoints]
	edsName string

	// state is what the balancer gets to see.
	state *balancer.ClusterState
}

func newClusterNode(g *graph, name string) *clusterNode {
	n := &clusterNode{graph: g, name: name, state: new(balancer.ClusterState)}
	n.cds = newWatch(g, xdsresource.ClusterType, name, n.onCluster)
	return n
}

func (n *clusterNode) stop() {
	n.cds.stop()
	n.stopEndpoints()
}

func (n *clusterNode) stopEndpoints() {
	if n.eds != nil {
		n.eds.stop()
		n.eds, n.edsName = nil, ""
	}
}

// answered reports whether it is known what RPCs to the cluster can expect.
func (n *clusterNode) answered() bool {
	return n.state.Endpoints != nil || n.state.Err != nil && !n.graph.willSayMore(n.state.Err)
}

func (n *clusterNode) onCluster(c *xdsresource.Cluster, err error) {
	if err != nil {
		n.cluster = nil
		n.stopEndpoints()
		n.become(balancer.ClusterState{Err: err})
		return
	}
	n.cluster = c
	if n.eds == nil || n.edsName != c.EDSServiceName {
		n.stopEndpoints()
		n.edsName = c.EDSServiceName
		n.eds = newWatch(n.graph, xdsresource.EndpointsType, n.edsName, n.onEndpoints)
		n.eds.start()
	}
	// The endpoints of the assignment before, if there is one, stay in use
	// until the new one answers.
	if value, ok := n.eds.value(); ok {
		n.become(balancer.ClusterState{Cluster: c, Endpoints: value})
	} else {
		n.lacksEndpoints(n.eds.err())
	}
}

func (n *clusterNode) onEndpoints(e *xdsresource.Endpoints, err error) {
	if err != nil {
		n.lacksEndpoints(err)
		return
	}
	n.become(balancer.ClusterState{Cluster: n.cluster, Endpoints: e})
}

// lacksEndpoints takes in that the assignment is not there, and why, if that is
// known.
func (n *clusterNode) lacksEndpoints(err error) {
	if err != nil && n.state.Endpoints != nil && n.graph.willSayMore(err) {
		logger.Warningf("Cluster %q: the endpoints in use stay until ClusterLoadAssignment %q can be had: %v", n.name, n.edsName, err)
		err = nil
	}
	n.become(balancer.ClusterState{Cluster: n.cluster, Endpoints: n.state.Endpoints, Err: err})
}

func (n *clusterNode) become(s balancer.ClusterState) {
	if s.Err != nil {
		s.Endpoints = nil
	}
	if s == *n.state {
		return
	}
	n.state = &s
	n.graph.clusterChanged(n)
}
