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

// usePlugin makes c the Cluster of a member. Its endpoints are known: it has none.
func (m *member) usePlugin(c *xdsresource.Cluster) {
	m.setState(balancer.ClusterState{Cluster: c, Endpoints: new(xdsresource.Endpoints), Notes: (*notes)(m)})
}

// isPlugin reports whether the routes have made the member, and not a Cluster.
func (m *member) isPlugin() bool {
	return m.state.Cluster != nil && m.state.Cluster.Kind == xdsresource.ClusterPlugin
}

// updatePlugins applies the configs of the plugins that are in use already.
func (g *graph) updatePlugins(rc *xdsresource.RouteConfiguration) {
	for name, c := range rc.Plugins {
		m := g.members[name]
		if m != nil && m.isPlugin() && (m.state.Cluster.LBPolicy != c.LBPolicy || m.state.Cluster.LBConfig != c.LBConfig) {
			m.usePlugin(c)
		}
	}
}

// Subscribe implements balancer.Subscriber.
func (g *graph) Subscribe(name string) (release func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.subscribed[name]++
	if !g.closed && g.latest() != nil {
		// It may be there for next alone.
		g.dirty = append(g.dirty, g.node(name))
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
	n := g.clusters[name]
	if g.closed || n == nil {
		return
	}
	if routed := g.current != nil && n.generation == g.current.generation || g.next != nil && n.generation == g.next.generation; routed {
		return
	}
	g.unswept = true
	table := g.table.Edit()
	table.Delete(name)
	g.table = table.Map()
	g.changed()
}
