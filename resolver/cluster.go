package resolver

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/dynxds/dynxds/balancer"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// cluster is one Cluster that the channel watches, with its endpoints. Guarded by the graph's lock.
type cluster struct {
	graph *graph
	name  string
	cds   watch[*xdsresource.Cluster]
	// eds or dns provides the endpoints, unless the Cluster has them itself or is an aggregate one. They call
	// update. eds can be read without the lock.
	eds atomic.Pointer[endpointsWatch]
	dns *dnsEndpoints
	// state is what the answers say, whatever RPCs are sent to meanwhile: empty until the Cluster is known, and
	// without Endpoints and Err until the endpoints are.
	state *balancer.ClusterState

	// users are the clusters that RPCs are routed to and that depend on this one, as of the last sweep.
	users []*cluster

	// Of a cluster that RPCs are routed to, or will be:
	generation uint64                 // of the latest config that routes to it
	changed    []string               // the clusters it depends on that have changed since the last build
	rewalk     bool                   // so have the clusters under them
	walk       *walk                  // nil if it is not an aggregate one
	built      *balancer.ClusterState // what RPCs to it get, as of the last build; nil before the first
}

type endpointsWatch = watch[*xdsresource.Endpoints]

// walk is a walk through the clusters under an aggregate cluster.
type walk struct {
	visited []*cluster // aggregate ones too
	// state has an error, or the clusters with endpoints in order of preference, without their states.
	state *balancer.ClusterState
}

// cluster returns the cluster of the given name. It starts to watch a new one, which ends with the next sweep unless
// RPCs need it.
func (g *graph) cluster(name string) *cluster {
	c := g.clusters[name]
	if c == nil {
		c = &cluster{graph: g, name: name, state: new(balancer.ClusterState)}
		c.cds = watch[*xdsresource.Cluster]{graph: g, typ: xdsresource.ClusterType, name: name, changed: c.onCluster}
		g.clusters[name], g.unswept = c, true
		if plugin := g.plugin(name); plugin != nil {
			c.usePlugin(plugin)
		} else {
			c.cds.start()
		}
	}
	return c
}

func (c *cluster) stop() {
	c.cds.stop()
	c.follow(nil)
}

func (c *cluster) onCluster() {
	c.follow(c.cds.last)
	c.update()
}

// follow makes the endpoints those of a version of the Cluster, nil for none. What has to end does so after what it needs
// instead has started, so that what both need stays subscribed.
func (c *cluster) follow(value *xdsresource.Cluster) {
	var eds *endpointsWatch
	var dns *dnsEndpoints
	switch {
	case value == nil:
	case value.Kind == xdsresource.ClusterEDS:
		if eds = c.eds.Load(); eds == nil || eds.name != value.EDSServiceName {
			eds = newWatch[*xdsresource.Endpoints](c.graph, xdsresource.EndpointsType, value.EDSServiceName, c.update)
			eds.start()
		}
	case value.Kind.DNS():
		dns = newDNSEndpoints(c, value)
	}
	if before := c.eds.Swap(eds); before != nil && before != eds {
		before.stop()
	}
	if c.dns != nil {
		c.dns.stop()
	}
	c.dns = dns
}

// update computes the state from the answers.
func (c *cluster) update() {
	s := balancer.ClusterState{Cluster: c.cds.last, Err: c.cds.lastErr, Notes: (*notes)(c)}
	if eds := c.eds.Load(); eds != nil {
		s.Endpoints, s.Err = eds.last, eds.lastErr
	} else if c.dns != nil {
		s.Endpoints, s.Err = c.dns.resolve()
		s.ResolveNow = c.resolveNow
	} else if s.Cluster != nil && s.Cluster.Kind == xdsresource.ClusterStatic {
		s.Endpoints = s.Cluster.Inline
	}
	c.setState(s)
}

func (c *cluster) setState(s balancer.ClusterState) {
	before := c.state
	if s.Cluster == before.Cluster && s.Endpoints == before.Endpoints && sameError(s.Err, before.Err) {
		return
	}
	c.state = &s
	// The requests for the clusters under it leave at once.
	for _, name := range under(&s) {
		c.graph.cluster(name)
	}
	rewalk := !slices.Equal(under(before), under(&s))
	for _, user := range c.users {
		user.affected(c, rewalk || user == c)
	}
	c.graph.changed()
}

func sameError(a, b error) bool {
	return a == b || a != nil && b != nil && a.Error() == b.Error()
}

// under returns the clusters under an aggregate cluster, else nil.
func under(s *balancer.ClusterState) []string {
	if s.Cluster == nil || s.Cluster.Kind != xdsresource.ClusterAggregate {
		return nil
	}
	return s.Cluster.Underlying
}

// affected records that RPCs are routed to c and that by, on which it depends, has changed. The next build computes c
// again, and walks once for all of a thousand aggregate clusters that come one by one.
func (c *cluster) affected(by *cluster, rewalk bool) {
	c.rewalk = c.rewalk || rewalk
	c.changed = append(c.changed, by.name)
	if len(c.changed) == 1 {
		c.graph.dirty = append(c.graph.dirty, c)
	}
}

// walkUnder lists the clusters under c, and starts to watch those that are missing.
func (c *cluster) walkUnder() {
	c.graph.unswept = c.graph.unswept || c.walk != nil
	c.walk = nil
	if under(c.state) == nil {
		return
	}
	c.graph.unswept = true
	c.walk = &walk{state: &balancer.ClusterState{Cluster: c.state.Cluster, Notes: (*aggregateNotes)(c)}}
	w := xdsresource.UnderlyingWalk{Under: func(name string) []string {
		visited := c.graph.cluster(name)
		c.walk.visited = append(c.walk.visited, visited)
		return under(visited.state)
	}}
	if err := w.Visit(c.name); err != nil {
		c.walk.state.Notes = c.state.Notes
		c.walk.state.Err = errors.New(err.ErrorFor(fmt.Sprintf(" (node id %q)", c.graph.client.Bootstrap().Node.GetId())))
	} else {
		c.walk.state.Underlying = &balancer.Underlying{Names: w.Leaves}
	}
}
