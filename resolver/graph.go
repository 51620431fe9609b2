package resolver

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/dynxds/dynxds/balancer"
	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/pmap"
	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/xdsclient"
)

// graph watches the resources that one channel depends on. A watcher records its answer under the
// graph's lock, and starts the watches that the answer requires before it calls done, so that their
// requests go out together. What the answers mean for RPCs is computed later, once for all answers
// since the last time, by build.
type graph struct {
	client    xdsclient.Client
	authority string
	usesXDS   bool   // the channel leaves the security of connections to the control plane
	changed   func() // is called with mu held when the next snapshot may differ

	mu       sync.Mutex
	closed   bool
	accepted bool // there has been a valid Listener
	lds      *watch[xdsresource.Listener]
	// rds provides the routes in use, or an error in their place, and can be read without the lock. nextRDS, if not nil, is the
	// RouteConfiguration that a newer Listener names and that has no routes yet.
	rds     atomic.Pointer[routesWatch]
	nextRDS *routesWatch

	clusters map[string]*cluster // all that are watched
	// subscribed counts the subscriptions of each name. They outlive the configurations.
	subscribed map[string]int

	// current is the configuration in use. next, if not nil, replaces it when its clusters
	// have answered. Without a configuration both are nil, and err is the reason.
	current, next *config
	configs       uint64 // how many there were
	err           error
	// The next build visits every cluster if whole, otherwise those in touched. builds counts those that visited every cluster.
	whole   bool
	touched []*cluster
	builds  uint64
	// table has the states of the clusters in use, as of the last build.
	table pmap.Map[*balancer.ClusterState]
	last  *snapshot
}

type routesWatch = watch[xdsresource.RouteConfiguration]

// config is a set of resources to route by.
type config struct {
	listener    *xdsresource.Listener
	routes      *xdsresource.RouteConfiguration
	virtualHost *xdsresource.VirtualHost
	clusters    []*cluster // those that it routes RPCs to
	waits       []*cluster // those of them that have to answer first
}

// snapshot is the state of a graph at one moment.
type snapshot struct {
	version  uint64
	config   *config // nil: none yet, or see err
	accepted bool
	clusters pmap.Map[*balancer.ClusterState] // of config
	err      error
}

// newGraph begins to watch a Listener.
func newGraph(client xdsclient.Client, listener, authority string, changed func()) *graph {
	g := &graph{
		client:     client,
		authority:  authority,
		changed:    changed,
		clusters:   make(map[string]*cluster),
		subscribed: make(map[string]int),
		last:       new(snapshot),
	}
	g.lds = newWatch[xdsresource.Listener](g, xdsresource.ListenerType, listener, g.configure)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lds.start()
	return g
}

func (g *graph) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.lds.stop()
	g.useRoutes(nil, nil)
	for _, c := range g.clusters {
		c.stop()
	}
}

func isOfKind(err error, kind xdsclient.ErrorKind) bool {
	e, ok := errors.AsType[*xdsclient.Error](err)
	return ok && e.Kind == kind
}

// isTransient reports whether err says nothing of a resource, and its server is that of the Listener's authority, so
// that what is in use waits for it. The servers of other authorities are not waited for: an outage of one delays its
// own resources, but not routes that use them among others.
func (g *graph) isTransient(err error) bool {
	e, ok := errors.AsType[*xdsclient.Error](err)
	return ok && e.Transient && xdsname.SameAuthority(e.Resource, g.lds.name)
}

// latest is the newest configuration, in use or not, or nil.
func (g *graph) latest() *config { return cmp.Or(g.next, g.current) }

// configure prepares the configuration that the Listener and the routes ask for. A RouteConfiguration that a newer Listener
// names takes over with its first answer. Until then, or if that is an error that does not say that it is missing, the routes
// in use apply, and changes of them too, but with the old Listener.
func (g *graph) configure() {
	l, err := g.lds.last, g.lds.lastErr
	if err != nil {
		g.useRoutes(nil, nil)
		g.withdraw(err)
		return
	}
	g.accepted = true
	if l.RouteConfig != nil {
		g.useRoutes(nil, nil)
		g.route(l, l.RouteConfig)
		return
	}
	inUse, newest := g.rds.Load(), g.routes(l.RouteConfigName)
	switch {
	case newest.last != nil:
		g.useRoutes(newest, nil)
		g.route(l, newest.last)
		return
	case newest.lastErr != nil && (newest == inUse || g.current == nil || isOfKind(newest.lastErr, xdsclient.KindDoesNotExist)):
		g.useRoutes(newest, nil)
		g.withdraw(newest.lastErr)
		return
	case newest.lastErr != nil:
		logger.Warningf("Listener %q keeps its old routes until RouteConfiguration %q is available: %v", g.lds.name, newest.name, newest.lastErr)
	}
	g.useRoutes(inUse, newest)
	if latest := g.latest(); latest != nil && inUse != nil && inUse.last != nil {
		g.route(latest.listener, inUse.last)
	}
}

// routes returns the watch of a RouteConfiguration, which it starts if it is new.
func (g *graph) routes(name string) *routesWatch {
	for _, w := range []*routesWatch{g.rds.Load(), g.nextRDS} {
		if w != nil && w.name == name {
			return w
		}
	}
	w := newWatch[xdsresource.RouteConfiguration](g, xdsresource.RouteConfigurationType, name, g.configure)
	w.start()
	return w
}

// useRoutes makes the watches rds and nextRDS, each of which may be nil, and ends others.
func (g *graph) useRoutes(rds, next *routesWatch) {
	for _, w := range []*routesWatch{g.rds.Swap(rds), g.nextRDS} {
		if w != nil && w != rds && w != next {
			w.stop()
		}
	}
	g.nextRDS = next
}

// route makes a configuration the next one, which waits for the clusters that it adds. It does not wait for
// those that RPCs are sent to already:
//
//	in use: /a → x (answered), / → y (DNS is silent)
//	new:    /a → z,            / → y
//	The new routes wait for z and not for y, whose RPCs wait under either.
func (g *graph) route(l *xdsresource.Listener, rc *xdsresource.RouteConfiguration) {
	if c := g.latest(); c != nil && c.listener == l && c.routes == rc {
		return
	}
	vh := rc.VirtualHost(g.authority)
	if vh == nil {
		g.withdraw(fmt.Errorf("RouteConfiguration %s of Listener %s has no virtual host for authority %s (node id %q); "+
			"add the authority to the domains of one, or dial with grpc.WithAuthority",
			bounds.Quote(rc.Name), bounds.Quote(l.Name), bounds.Quote(g.authority), g.client.Bootstrap().Node.GetId()))
		return
	}
	g.err = nil
	g.next = &config{listener: l, routes: rc, virtualHost: vh, clusters: make([]*cluster, 0, len(g.clusters))}
	g.configs++
	for name := range vh.Clusters {
		c := g.cluster(name)
		if c.listed == g.configs {
			continue
		}
		c.listed = g.configs
		if plugin := rc.Plugins[name]; plugin != nil {
			c.usePlugin(plugin)
		}
		g.next.clusters = append(g.next.clusters, c)
		if !c.inUse {
			g.next.waits = append(g.next.waits, c)
		}
	}
	g.changedAll()
}

// changedAll has the next build visit every cluster.
func (g *graph) changedAll() {
	g.whole = true
	g.changed()
}

// withdraw removes the configuration, for the given reason.
func (g *graph) withdraw(reason error) {
	g.current, g.next, g.err = nil, nil, reason
	g.changedAll()
}

// subscribe is balancer.State.Subscribe.
func (g *graph) subscribe(name string, n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.subscribed[name] += n; g.subscribed[name] == 0 {
		delete(g.subscribed, name)
	}
	if !g.closed {
		g.changedAll()
	}
}
