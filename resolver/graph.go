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

// graph watches the resources that one channel depends on. Watchers change it under its lock
// and start the watches that a change requires before they call done, so that their requests
// go out together.
//
// A working configuration is replaced only by one that works: a new RouteConfiguration, and
// routes to clusters that have not answered yet, wait beside those in use. Only the first
// configuration does not wait; RPCs to its clusters wait one by one in the balancer.
type graph struct {
	client    xdsclient.Client
	authority string
	usesXDS   bool   // the channel leaves the security of connections to the control plane
	changed   func() // is called with mu held when the next snapshot would differ

	mu     sync.Mutex
	closed bool
	// patient: DNS serves the channel, so that the first configuration waits for its
	// clusters as later ones do.
	patient  bool
	accepted bool // there has been a valid Listener
	lds      *watch[*xdsresource.Listener]
	listener *xdsresource.Listener
	// rds provides the routes in use. nextRDS, if not nil, is the RouteConfiguration that
	// a newer Listener names and that has not answered yet.
	rds, nextRDS *routeSource
	// routes is that of rds, for notes.
	routes atomic.Pointer[watch[*xdsresource.RouteConfiguration]]

	// current is the configuration in use. next, if not nil, replaces it when its clusters
	// have answered. Without a configuration both are nil, and err is the reason.
	current, next *config
	err           error

	// clusters has the clusters of current and next, table the states of those of current as last
	// published, edits the changes since.
	clusters   map[string]*clusterNode
	stale      []*clusterNode // whose lists of clusters the next snapshot makes again
	table      pmap.Map[*balancer.ClusterState]
	edits      *pmap.Builder[*balancer.ClusterState]
	generation uint64 // of the latest config
}

// config is a set of resources to route by.
type config struct {
	generation      uint64
	listener        *xdsresource.Listener
	routes          *xdsresource.RouteConfiguration
	virtualHost     *xdsresource.VirtualHost
	defaultClusters []string
	unanswered      int // clusters that it waits for
}

// routeSource is a RouteConfiguration that a Listener names.
type routeSource struct {
	name  string
	watch *watch[*xdsresource.RouteConfiguration]
}

// snapshot is the state of a graph at one moment.
type snapshot struct {
	version  uint64
	config   *config // nil: none yet, or see err
	accepted bool
	clusters pmap.Map[*balancer.ClusterState]
	err      error
}

func newGraph(client xdsclient.Client, listener, authority string, changed func()) *graph {
	g := &graph{
		client:    client,
		authority: authority,
		changed:   changed,
		clusters:  make(map[string]*clusterNode),
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
	g.rds.stop()
	g.nextRDS.stop()
	for _, n := range g.clusters {
		n.stop()
	}
}

func (s *routeSource) stop() {
	if s != nil && s.watch != nil {
		s.watch.stop()
	}
}

func (g *graph) setPatient(patient bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.patient = patient
}

// snapshot returns the current state of the graph, under a new version.
func (g *graph) snapshot() *snapshot {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.relistAll()
	if g.edits != nil {
		g.table = g.edits.Map()
		g.edits = nil
	}
	return &snapshot{version: versions.Add(1), config: g.current, accepted: g.accepted, clusters: g.table, err: g.err}
}

func (g *graph) onListener(l *xdsresource.Listener, err error) {
	if err != nil {
		g.listener = nil
		g.rds.stop()
		g.nextRDS.stop()
		g.useRoutes(nil)
		g.withdraw(err)
		return
	}
	g.listener, g.accepted = l, true
	switch {
	case l.RouteConfig != nil:
		g.rds.stop()
		g.nextRDS.stop()
		g.useRoutes(nil)
		g.route(l.RouteConfig)
	case g.rds != nil && g.rds.name == l.RouteConfigName:
		g.nextRDS.stop()
		g.nextRDS = nil
		if value, ok := g.rds.watch.value(); ok {
			g.route(value)
		}
	case g.nextRDS != nil && g.nextRDS.name == l.RouteConfigName:
		// It has not answered yet.
	default:
		g.nextRDS.stop()
		g.nextRDS = g.newRouteSource(l.RouteConfigName)
	}
}

// useRoutes makes s, which may be nil, the source of the routes.
func (g *graph) useRoutes(s *routeSource) {
	g.rds, g.nextRDS = s, nil
	if s == nil {
		g.routes.Store(nil)
	} else {
		g.routes.Store(s.watch)
	}
}

func (g *graph) newRouteSource(name string) *routeSource {
	s := &routeSource{name: name}
	s.watch = newWatch(g, xdsresource.RouteConfigurationType, name,
		func(rc *xdsresource.RouteConfiguration, err error) { g.onRoutes(s, rc, err) })
	s.watch.start()
	return s
}

// onRoutes handles the answer of a RouteConfiguration.
func (g *graph) onRoutes(s *routeSource, rc *xdsresource.RouteConfiguration, err error) {
	if s == g.nextRDS {
		if err != nil && g.current != nil && !doesNotExist(err) {
			logger.Warningf("Listener %q keeps its old routes until RouteConfiguration %q is available: %v", g.listener.Name, s.name, err)
			return
		}
		g.rds.stop()
		g.useRoutes(s)
	}
	if g.nextRDS != nil {
		// The Listener names another RouteConfiguration. Until that answers, changes of
		// the old one apply, but with the old Listener.
		if err == nil && g.current != nil {
			g.configure(g.current.listener, rc)
		}
		return
	}
	if err != nil {
		g.withdraw(err)
		return
	}
	g.route(rc)
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

// route configures the graph by the Listener and the given routes.
func (g *graph) route(rc *xdsresource.RouteConfiguration) { g.configure(g.listener, rc) }

// configure prepares a configuration and uses it once the clusters that it adds have answered. It does
// not wait for those that RPCs are sent to already:
//
//	in use: /a → x (answered), / → y (DNS is silent)
//	new:    /a → z,            / → y
//	The new routes wait for z and not for y, whose RPCs wait under either.
func (g *graph) configure(l *xdsresource.Listener, rc *xdsresource.RouteConfiguration) {
	vh := rc.VirtualHost(g.authority)
	if vh == nil {
		g.withdraw(fmt.Errorf("RouteConfiguration %s of Listener %s has no virtual host for authority %s (node id %q); "+
			"add the authority to the domains of one, or dial with grpc.WithAuthority",
			bounds.Quote(rc.Name), bounds.Quote(l.Name), bounds.Quote(g.authority), g.client.Bootstrap().Node.GetId()))
		return
	}
	g.err = nil
	next := &config{listener: l, routes: rc, virtualHost: vh, defaultClusters: lastDestinations(vh)}
	if g.next == nil && g.current != nil && xdsresource.SameClusters(vh, g.current.virtualHost) {
		next.generation = g.current.generation
		g.current = next
		g.changed()
		return
	}
	g.generation++
	next.generation = g.generation
	g.next = next
	for _, name := range vh.Clusters() {
		n := g.clusters[name]
		if n == nil {
			n = newClusterNode(g, name)
			g.clusters[name] = n
			n.start()
		}
		n.generation = g.generation
		_, inUse := g.edit().Get(name)
		n.awaited = !inUse && !n.answered()
		if n.awaited {
			g.next.unanswered++
		}
	}
	g.settle()
	g.releaseReplaced()
}

// releaseReplaced drops the clusters of routes that were replaced while they waited, unless other routes name them too: a control
// plane may change routes again and again without answering for their clusters. The newest routes have started their
// watches before, so that no subscription ends and begins again.
func (g *graph) releaseReplaced() {
	if g.next == nil {
		return // settle has done so
	}
	for name, n := range g.clusters {
		if _, inUse := g.edit().Get(name); !inUse && g.outgoing(n) {
			g.drop(name, n)
		}
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

// settle replaces current by next if that need not wait any longer.
func (g *graph) settle() {
	if g.next == nil || ((g.current != nil || g.patient) && g.next.unanswered > 0) {
		return
	}
	g.current, g.next = g.next, nil
	for name, n := range g.clusters {
		if n.generation != g.current.generation {
			g.drop(name, n)
			continue
		}
		g.edit().Set(name, n.state)
	}
	g.changed()
}

// withdraw removes the configuration, for the given reason.
func (g *graph) withdraw(reason error) {
	g.current, g.next, g.err = nil, nil, reason
	for name, n := range g.clusters {
		g.drop(name, n)
	}
	g.changed()
}

func (g *graph) drop(name string, n *clusterNode) {
	n.stop()
	delete(g.clusters, name)
	g.edit().Delete(name)
}

func (g *graph) edit() *pmap.Builder[*balancer.ClusterState] {
	if g.edits == nil {
		g.edits = g.table.Edit()
	}
	return g.edits
}

// relistLater has the next snapshot make the list of clusters under an aggregate one again.
func (g *graph) relistLater(n *clusterNode) {
	if len(n.stale) == 1 { // else it is in g.stale already
		g.stale = append(g.stale, n)
	}
	g.changed()
}

// relistAll does that, before a snapshot is made.
func (g *graph) relistAll() {
	stale := g.stale
	g.stale = nil
	changed := g.changed
	g.changed = func() {} // The snapshot has what changes here.
	defer func() { g.changed = changed }()
	for _, n := range stale {
		if !g.closed && g.clusters[n.name] == n {
			n.relist(false)
		}
	}
}

// clusterChanged is called when the state of a cluster has changed.
func (g *graph) clusterChanged(n *clusterNode) {
	if n.awaited && n.answered() {
		n.awaited = false
		if g.next != nil && n.generation == g.next.generation {
			g.next.unanswered--
		}
		g.settle()
	}
	if g.current != nil && g.publishes(n) {
		g.edit().Set(n.name, n.state)
		g.changed()
	}
}

// publishes reports whether the state of a cluster replaces the published one at once.
func (g *graph) publishes(n *clusterNode) bool {
	published, inUse := g.edit().Get(n.name)
	lost := inUse && published.Err == nil && n.state.Err != nil
	switch {
	case !inUse:
		return false // The cluster is published with next.
	case lost && g.outgoing(n):
		// The control plane has deleted the cluster along with its last route. RPCs still go there until the
		// clusters of the new routes have answered, unless the cluster asks for stricter security than its
		// connections have.
		return g.underSecured(n.name, published)
	default:
		return true
	}
}

// outgoing reports whether a cluster is in use only until next replaces current.
func (g *graph) outgoing(n *clusterNode) bool {
	return g.next != nil && n.generation != g.next.generation
}
