package resolver

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/dynxds/dynxds/balancer"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/inspect"
)

var _ inspect.Source = (*xdsSource)(nil)

// Config implements inspect.Source.
func (x *xdsSource) Config() inspect.Config {
	c := x.graph.inspect()
	c.Client, c.Authority = x.bootstrap.Fingerprint(), x.opts.Authority
	c.Secure, c.UsesXDS = secure(x.opts), x.usesXDS
	if last := x.applied.Load(); last != nil {
		c.Version, c.Published = last.version, last.applied
	}
	return c
}

// ClusterNames implements inspect.Source.
func (x *xdsSource) ClusterNames() []string {
	x.graph.mu.Lock()
	names := x.graph.routed()
	x.graph.mu.Unlock()
	slices.Sort(names)
	return names
}

// Cluster implements inspect.Source.
func (x *xdsSource) Cluster(ctx context.Context, name string) (inspect.Cluster, bool) {
	state, resources, ok := x.graph.inspectCluster(name)
	if !ok {
		return inspect.Cluster{}, false
	}
	c, served := x.live.Cluster(ctx, name)
	if !served {
		c = unserved(name, state)
		if err := ctx.Err(); err != nil {
			c.Error = "the load-balancing policy did not answer: " + err.Error()
		}
	}
	c.Resources = resources
	return c, true
}

// unserved describes a cluster that the balancer does not have, at least not yet.
func unserved(name string, s *balancer.ClusterState) inspect.Cluster {
	c := balancer.Describe(name, s)
	if c.Unserved = true; c.Phase == inspect.PhaseDormant {
		c.Phase = inspect.PhaseResolving
	}
	return c
}

// routed returns the names of the clusters that RPCs are routed to, or will be. The graph is locked.
func (g *graph) routed() (names []string) {
	for name, c := range g.clusters {
		if c.built != nil {
			names = append(names, name)
		}
	}
	return names
}

func (g *graph) inspect() inspect.Config {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := inspect.Config{
		Clusters: len(g.routed()),
		Listener: *g.lds.inspect(), Routes: g.rds.Load().inspect(), NextRoutes: g.nextRDS.inspect(),
	}
	if listener, ok := g.lds.value(); ok {
		c.Inline = listener.RouteConfig != nil
	}
	if g.current != nil {
		c.VirtualHost = g.current.virtualHost.Name
	}
	if g.err != nil {
		c.Error = g.err.Error()
	}
	if g.next == nil {
		return c
	}
	for _, cluster := range g.next.waits {
		c.WaitsFor = append(c.WaitsFor, cluster.name)
	}
	slices.Sort(c.WaitsFor)
	c.Waits = len(c.WaitsFor)
	c.WaitsFor = c.WaitsFor[:min(c.Waits, inspect.MaxWaits)]
	return c
}

// inspectCluster returns the last state of a cluster, and the resources that lead to it.
func (g *graph) inspectCluster(name string) (*balancer.ClusterState, []inspect.Resource, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.clusters[name]
	if c == nil || c.built == nil {
		return nil, nil, false
	}
	state, resources := c.built, c.inspect()
	others := make(map[string]*cluster)
	if state.Underlying != nil {
		for _, other := range state.Underlying.Names {
			others[other] = g.clusters[other]
		}
	}
	if c.walk != nil {
		for _, other := range c.walk.visited {
			others[other.name] = other
		}
	}
	delete(others, name)
	for _, other := range slices.Sorted(maps.Keys(others)) {
		if len(resources) >= inspect.MaxResources {
			return state, resources[:inspect.MaxResources], true
		}
		resources = append(resources, others[other].inspect()...)
	}
	return state, resources, true
}

// inspect returns the resources of a cluster. The graph is locked.
func (c *cluster) inspect() []inspect.Resource {
	if c.isPlugin() {
		return nil
	}
	all := []inspect.Resource{*c.cds.inspect()}
	if eds := c.eds.Load(); eds != nil {
		all = append(all, *eds.inspect())
	}
	if c.dns != nil {
		for _, name := range slices.Sorted(maps.Keys(c.dns.names)) {
			all = append(all, c.dns.names[name].inspect(name))
		}
	}
	return all
}

// inspect describes the resource, nil for no watch. The graph is locked.
func (w *watch[T]) inspect() *inspect.Resource {
	if w == nil {
		return nil
	}
	r := &inspect.Resource{Type: w.typ.Name, Name: w.name}
	_, r.Known = w.value()
	if w.lastErr != nil {
		r.Error = w.lastErr.Error()
	}
	r.Ambient = strings.Join(w.ambient.Load().texts(), "; ")
	return r
}

// inspect describes the answer of DNS. The graph is locked.
func (n *dnsName) inspect(name string) inspect.Resource {
	r := inspect.Resource{Type: "DNS name", Name: name}
	switch {
	case n.result.Addresses != nil:
		r.Known = true
	case n.result.Err != nil:
		r.Error = faults.Shorten(n.result.Err.Error(), maxFaultText)
	}
	return r
}
