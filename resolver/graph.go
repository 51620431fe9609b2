package resolver

import (
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

	mu     sync.Mutex
	closed bool
	// patient: DNS serves the channel, so that the first configuration waits for its
	// clusters as later ones do.
	patient  bool
	accepted bool // there has been a valid Listener
	lds      *watch[*xdsresource.Listener]
	// rds provides the routes in use, and can be read without the lock. nextRDS, if not nil, is the RouteConfiguration
	// that a newer Listener names and that has not answered yet.
	rds     atomic.Pointer[routesWatch]
	nextRDS *routesWatch

	members  map[string]*member      // every Cluster that is watched
	clusters map[string]*clusterNode // those that current and next route to, and subscribed ones
	// subscribed counts the subscriptions of each name. They outlive the configurations.
	subscribed map[string]int
	dirty      []*clusterNode // what build has to compute again
	unswept    bool           // members or clusters may be needed no longer

	// current is the configuration in use. next, if not nil, replaces it when its clusters
	// have answered. Without a configuration both are nil, and err is the reason.
	current, next *config
	err           error
	generation    uint64 // of the latest config
	// table has the states of the clusters of current, as of the last build.
	table pmap.Map[*balancer.ClusterState]
	last  *snapshot
}

type routesWatch = watch[*xdsresource.RouteConfiguration]

// config is a set of resources to route by.
type config struct {
	generation      uint64
	listener        *xdsresource.Listener
	routes          *xdsresource.RouteConfiguration
	virtualHost     *xdsresource.VirtualHost
	defaultClusters []string
	waits           map[string]bool // the clusters that have to answer first
}

// snapshot is the state of a graph at one moment.
type snapshot struct {
	version  uint64
	config   *config // nil: none yet, or see err
	accepted bool
	clusters pmap.Map[*balancer.ClusterState] // of config
	err      error
}

func newGraph(client xdsclient.Client, listener, authority string, changed func()) *graph {
	g := &graph{
		client:     client,
		authority:  authority,
		changed:    changed,
		members:    make(map[string]*member),
		clusters:   make(map[string]*clusterNode),
		subscribed: make(map[string]int),
		last:       new(snapshot),
	}
	g.lds = newWatch(g, xdsresource.ListenerType, listener, g.onListener)
	return g
}

func (g *graph) start() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lds.start()
}

func (g *graph) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.lds.stop()
	g.useRoutes(nil, nil)
	for _, m := range g.members {
		m.stop()
	}
}

func (g *graph) setPatient(patient bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.patient = patient
}

func (g *graph) onListener(l *xdsresource.Listener, err error) {
	if err != nil {
		g.useRoutes(nil, nil)
		g.withdraw(err)
		return
	}
	g.accepted = true
	switch name, rds := l.RouteConfigName, g.rds.Load(); {
	case l.RouteConfig != nil:
		g.useRoutes(nil, nil)
	case rds != nil && rds.name == name:
		g.useRoutes(rds, nil)
	case g.nextRDS == nil || g.nextRDS.name != name:
		next := newWatch[*xdsresource.RouteConfiguration](g, xdsresource.RouteConfigurationType, name, nil)
		next.changed = func(_ *xdsresource.RouteConfiguration, err error) { g.onRoutes(next, err) }
		g.useRoutes(rds, next)
		next.start()
	}
	g.configure()
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

// onRoutes handles the answer of a RouteConfiguration. The one that a newer Listener names takes over with its
// first answer. Until then, routes in use stay after an error that does not say that it is missing.
func (g *graph) onRoutes(w *routesWatch, err error) {
	if w == g.nextRDS {
		if err != nil && g.current != nil && !doesNotExist(err) {
			logger.Warningf("Listener %q keeps its old routes until RouteConfiguration %q is available: %v", g.lds.name, w.name, err)
			return
		}
		g.useRoutes(w, nil)
	}
	g.configure()
}

func doesNotExist(err error) bool {
	var e *xdsclient.Error
	return errors.As(err, &e) && e.Kind == xdsclient.KindDoesNotExist
}

// isTransient reports whether err says nothing of a resource, and its server is that of the Listener's authority, so
// that what is in use waits for it. The servers of other authorities are not waited for: an outage of one delays its
// own resources, but not routes that use them among others.
func (g *graph) isTransient(err error) bool {
	var e *xdsclient.Error
	return errors.As(err, &e) && e.Transient && xdsname.SameAuthority(e.Resource, g.lds.name)
}

// latest is the newest configuration, in use or not, or nil.
func (g *graph) latest() *config {
	if g.next != nil {
		return g.next
	}
	return g.current
}

// configure prepares the configuration that the Listener and the routes ask for.
func (g *graph) configure() {
	listener := g.lds.last
	if inline := listener.RouteConfig; inline != nil {
		g.route(listener, inline)
		return
	}
	rds := g.rds.Load()
	if rds == nil || rds.phase != watchAnswered {
		return
	}
	rc, ok := rds.value()
	switch latest := g.latest(); {
	case g.nextRDS != nil:
		// The Listener names another RouteConfiguration. Until that answers, changes of
		// the old one apply, but with the old Listener.
		if ok && latest != nil {
			g.route(latest.listener, rc)
		}
	case ok:
		g.route(listener, rc)
	default:
		g.withdraw(rds.lastErr)
	}
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
	defer g.changed()
	next := &config{listener: l, routes: rc, virtualHost: vh, defaultClusters: lastDestinations(vh)}
	g.updatePlugins(rc)
	if g.next == nil && g.current != nil && xdsresource.SameClusters(vh, g.current.virtualHost) {
		next.generation = g.current.generation
		g.current = next
		return
	}
	g.unswept = true
	g.generation++
	next.generation, next.waits = g.generation, make(map[string]bool)
	g.next = next
	for _, name := range vh.Clusters() {
		n := g.node(name)
		n.generation = g.generation
		if _, inUse := g.table.Get(name); !inUse && !g.answered(n.state) {
			next.waits[name] = true
		}
	}
	for name := range g.subscribed {
		g.node(name)
	}
}

// lastDestinations returns the clusters of the last route, which usually is the default one.
func lastDestinations(vh *xdsresource.VirtualHost) []string {
	if len(vh.Routes) == 0 {
		return nil
	}
	f, ok := vh.Routes[len(vh.Routes)-1].Action.(*xdsresource.Forward)
	if !ok {
		return nil
	}
	names := make([]string, 0, len(f.Clusters))
	for _, c := range f.Clusters {
		if c.Name != "" { // else a header names it
			names = append(names, c.Name)
		}
	}
	return names
}

// withdraw removes the configuration, for the given reason.
func (g *graph) withdraw(reason error) {
	g.current, g.next, g.err = nil, nil, reason
	g.table = pmap.Map[*balancer.ClusterState]{}
	clear(g.clusters)
	g.unswept = true
	g.changed()
}

// outgoing reports whether a cluster is in use only until next replaces current.
func (g *graph) outgoing(n *clusterNode) bool {
	return g.next != nil && !g.needs(n, g.next)
}

// needs reports whether a configuration, which is current or next, has a cluster.
func (g *graph) needs(n *clusterNode, c *config) bool {
	return n.generation == c.generation || g.subscribed[n.name] > 0
}

// node returns the node of a cluster, which begins to watch it if it is new.
func (g *graph) node(name string) *clusterNode {
	n := g.clusters[name]
	if n == nil {
		n = newClusterNode(g, name)
		g.clusters[name] = n
	}
	return n
}
