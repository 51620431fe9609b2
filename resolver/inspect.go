package resolver

import (
	"context"
	"slices"

	"github.com/dynxds/dynxds/balancer"
	"github.com/dynxds/dynxds/internal/inspect"
)

// Config implements inspect.Source.
func (x *xdsSource) Config() inspect.Config {
	c := x.graph.inspect()
	c.Client, c.Version = x.bootstrap.Fingerprint(), x.applied.Load()
	c.Authority, c.Secure, c.UsesXDS = x.opts.Authority, secure(x.opts), x.usesXDS
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
	state := x.graph.built(name)
	if state == nil {
		return inspect.Cluster{}, false
	}
	var c inspect.Cluster
	served := false
	if ask := x.live.Load(); ask != nil {
		c, served = (*ask)(ctx, name)
	}
	if !served { // The balancer does not have it, at least not yet.
		c = balancer.Describe(name, state)
		if c.Unserved = true; c.Phase == inspect.PhaseDormant {
			c.Phase = inspect.PhaseResolving
		}
		if err := ctx.Err(); err != nil {
			c.Error = "the load-balancing policy did not answer: " + err.Error()
		}
	}
	return c, true
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
		Listener: g.lds.name, Routes: nameOf(g.rds.Load()), NextRoutes: nameOf(g.nextRDS),
	}
	if g.err != nil {
		c.Error = g.err.Error()
	}
	if g.next != nil {
		for _, cluster := range g.next.waits {
			c.WaitsFor = append(c.WaitsFor, cluster.name)
		}
		slices.Sort(c.WaitsFor)
		c.Waits = len(c.WaitsFor)
		c.WaitsFor = c.WaitsFor[:min(c.Waits, inspect.MaxWaits)]
	}
	return c
}

// nameOf returns the name of the resource of a watch, which may be nil.
func nameOf[T any](w *watch[T]) string {
	if w == nil {
		return ""
	}
	return w.name
}

// built returns what RPCs to a cluster get, nil if none are routed to it.
func (g *graph) built(name string) *balancer.ClusterState {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c := g.clusters[name]; c != nil {
		return c.built
	}
	return nil
}
