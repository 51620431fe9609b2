package resolver

import (
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
	cds   watch[xdsresource.Cluster]
	// eds or dns provides the endpoints, unless the Cluster has them itself or is an aggregate one. They call
	// update. eds can be read without the lock.
	eds atomic.Pointer[endpointsWatch]
	dns *dnsEndpoints
	// state is what the answers say, whatever RPCs are sent to meanwhile: empty until the Cluster is known, and
	// without Endpoints and Err until the endpoints are.
	state *balancer.ClusterState
	// edges changes with the list of an aggregate cluster.
	edges uint64

	// built is what RPCs get that are routed to it, nil if none are, and shown is that in the table: both as of the last build.
	built, shown *balancer.ClusterState
	inUse        bool  // it is in the table, or will be after this build
	walk         *walk // of an aggregate cluster that RPCs are routed to

	// listed is the number of the last configuration that routes RPCs to it.
	listed uint64
	// routed is the last build of all clusters in which RPCs were routed to it, 0 if it is in graph.touched. needed is the last one in
	// which it was under an aggregate cluster.
	routed, needed uint64
}

type endpointsWatch = watch[xdsresource.Endpoints]

// walk is a walk through the clusters under an aggregate cluster. It is repeated when one that it has visited has another list.
type walk struct {
	edges   uint64     // of all visited together
	visited []*cluster // aggregate ones too
	// state has an error, or the clusters with endpoints in order of preference, without their states.
	state *balancer.ClusterState
}

// cluster returns the cluster of the given name. It starts to watch a new one, which ends with the next build unless
// RPCs need it.
func (g *graph) cluster(name string) *cluster {
	c := g.clusters[name]
	if c == nil {
		c = &cluster{graph: g, name: name, state: new(balancer.ClusterState)}
		c.cds = watch[xdsresource.Cluster]{graph: g, typ: xdsresource.ClusterType, name: name, changed: c.onCluster}
		g.clusters[name] = c
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
			eds = newWatch[xdsresource.Endpoints](c.graph, xdsresource.EndpointsType, value.EDSServiceName, c.update)
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
	if same(before, &s) {
		return
	}
	c.state = &s
	// The requests for the clusters under it leave at once.
	for _, name := range under(&s) {
		c.graph.cluster(name)
	}
	if !slices.Equal(under(before), under(&s)) {
		c.edges++
	}
	c.touch()
}

// touch has the next build compute what RPCs to the cluster get. That visits no other cluster if this one is in use, and neither
// aggregate nor under an aggregate one.
func (c *cluster) touch() {
	g := c.graph
	g.whole = g.whole || !c.inUse || c.needed == g.builds || c.built.Underlying != nil || under(c.state) != nil
	if !g.whole && c.routed > 0 {
		c.routed = 0
		g.touched = append(g.touched, c)
	}
	g.changed()
}

// same reports whether two states of a cluster mean the same for RPCs.
func same(a, b *balancer.ClusterState) bool {
	return a.Cluster == b.Cluster && a.Endpoints == b.Endpoints && sameError(a.Err, b.Err) &&
		(a.Underlying == b.Underlying || a.SameList(b) && a.Underlying.States.Same(b.Underlying.States))
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

// answer is what the answers say of the cluster by now.
func (c *cluster) answer() *balancer.ClusterState {
	if c.dns != nil && c.dns.due {
		c.dns.noted, c.dns.due = false, false
		c.update()
	}
	return c.state
}

// walkUnder finds the clusters under an aggregate cluster, all of which are needed, and starts to watch those that are missing.
func (c *cluster) walkUnder() *balancer.ClusterState {
	g := c.graph
	if c.walk == nil || c.walk.edges != c.walk.edgesNow() || c.walk.state.Cluster != c.state.Cluster {
		c.walk = &walk{state: &balancer.ClusterState{Cluster: c.state.Cluster, Notes: (*aggregateNotes)(c)}}
		w := xdsresource.UnderlyingWalk{Context: fmt.Sprintf(" (node id %q)", g.client.Bootstrap().Node.GetId()), Under: func(name string) []string {
			visited := g.cluster(name)
			c.walk.visited = append(c.walk.visited, visited)
			return under(visited.state)
		}}
		if err := w.Visit(c.name); err != nil {
			c.walk.state.Notes, c.walk.state.Err = c.state.Notes, err
		} else {
			c.walk.state.Underlying = &balancer.Underlying{Names: w.Leaves}
		}
		c.walk.edges = c.walk.edgesNow()
	}
	for _, visited := range c.walk.visited {
		visited.needed = g.builds
	}
	return c.walk.state
}

// edgesNow only grows, as those of each cluster do.
func (w *walk) edgesNow() (n uint64) {
	for _, visited := range w.visited {
		n += visited.edges
	}
	return n
}

// plugin returns the cluster that the newest routes make of a plugin, nil if name is that of another cluster.
func (g *graph) plugin(name string) *xdsresource.Cluster {
	if c := g.latest(); c != nil {
		return c.routes.Plugins[name]
	}
	return nil
}

// usePlugin makes value the Cluster of c. Its endpoints are known: it has none.
func (c *cluster) usePlugin(value *xdsresource.Cluster) {
	if before := c.state.Cluster; !c.isPlugin() || before.LBPolicy != value.LBPolicy || before.LBConfig != value.LBConfig {
		c.stop()
		c.setState(balancer.ClusterState{Cluster: value, Endpoints: new(xdsresource.Endpoints), Notes: (*notes)(c)})
	}
}

// isPlugin reports whether the routes have made the cluster, and not a resource.
func (c *cluster) isPlugin() bool {
	return c.state.Cluster != nil && c.state.Cluster.Kind == xdsresource.ClusterPlugin
}
