package resolver

import (
	"sync"

	"github.com/dynxds/dynxds/balancer"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// plugin returns the cluster that the newest routes make of a plugin, nil if name is that of another cluster.
func (g *graph) plugin(name string) *xdsresource.Cluster {
	if c := g.latest(); c != nil {
		return c.routes.Plugins[name]
	}
	return nil
}

// usePlugin makes value the Cluster of c. Its endpoints are known: it has none.
func (c *cluster) usePlugin(value *xdsresource.Cluster) {
	c.setState(balancer.ClusterState{Cluster: value, Endpoints: new(xdsresource.Endpoints), Notes: (*notes)(c)})
}

// isPlugin reports whether the routes have made the cluster, and not a resource.
func (c *cluster) isPlugin() bool {
	return c.state.Cluster != nil && c.state.Cluster.Kind == xdsresource.ClusterPlugin
}

// updatePlugins applies the configs of the plugins that are in use already.
func (g *graph) updatePlugins(rc *xdsresource.RouteConfiguration) {
	for name, value := range rc.Plugins {
		c := g.clusters[name]
		if c != nil && c.isPlugin() && (c.state.Cluster.LBPolicy != value.LBPolicy || c.state.Cluster.LBConfig != value.LBConfig) {
			c.usePlugin(value)
		}
	}
}

// Subscribe is that of balancer.State.Subscriber.
func (g *graph) Subscribe(name string) (release func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.subscribed[name]++
	if !g.closed && g.latest() != nil {
		c := g.cluster(name)
		c.affected(c, true)
		g.changed()
	}
	return sync.OnceFunc(func() { g.unsubscribe(name) })
}

func (g *graph) unsubscribe(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.subscribed[name]--; g.subscribed[name] > 0 {
		return
	}
	delete(g.subscribed, name)
	if c := g.clusters[name]; g.closed || c == nil || g.current.routesTo(name) || g.next.routesTo(name) {
		return
	}
	g.unswept = true
	table := g.table.Edit()
	table.Delete(name)
	g.table = table.Map()
	g.changed()
}
