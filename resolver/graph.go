package resolver

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/dynxds/dynxds/balancer"
	"github.com/dynxds/dynxds/configselector"
	"github.com/dynxds/dynxds/internal/pmap"
	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/xdsclient"
)

// graph follows the resources that one channel depends on. Watchers change it
// under its lock and start the watches that follow from the change before
// they let the transport read on, so that the requests go out together.
//
// Nothing that works is given up for something that does not yet: routes by a
// new RouteConfiguration, and routes to clusters that have not answered yet,
// wait beside those in use. Only the first configuration does not wait, since
// there is nothing to lose; RPCs to a cluster that has not answered wait one
// by one in the balancer.
type graph struct {
	client    xdsclient.Client
	authority string
	// usesXDS: the channel leaves the security of connections to the control plane.
	usesXDS bool
	// changed is called with mu held when the next snapshot would differ.
	changed func()

	mu     sync.Mutex
	closed bool
	// patient: something else serves the channel, so that the first
	// configuration waits for its clusters as later ones do.
	patient bool
	// accepted: there was a Listener to use at some time.
	accepted bool
	lds      *watch[*xdsresource.Listener]
	listener *xdsresource.Listener
	// rds feeds the routes in use; nextRDS, if not nil, a RouteConfiguration
	// that the Listener has moved on to and that has not answered yet.
	rds, nextRDS *routeSource
	// routes is that of rds, for notes.
	routes atomic.Pointer[watch[*xdsresource.RouteConfiguration]]

	// current is the configuration in use; next, if not nil, the one that
	// takes its place when its clusters have answered. Both are nil, and err
	// says why, when there is nothing to route by.
	current, next *config
	err           error

	// clusters holds the clusters of current and next. table holds their
	// states as last published, edits what has changed since.
	clusters   map[string]*clusterNode
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
	unanswered      int // clusters that have not answered yet

	// selector is made by the publisher when it publishes the config first.
	selector *configselector.Selector
}

// routeSource is a RouteConfiguration asked for by name.
type routeSource struct {
	name  string
	watch *watch[*xdsresource.RouteConfiguration]
}

// snapshot is the state of a graph at one moment.
type snapshot struct {
	version  uint64
	config   *config // nil: none yet, or err
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

// snapshot returns the graph as it is now, under a new version.
func (g *graph) snapshot() *snapshot {
	g.mu.Lock()
	defer g.mu.Unlock()
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
		// Still waiting for it.
	default:
		g.nextRDS.stop()
		g.nextRDS = g.newRouteSource(l.RouteConfigName)
	}
}

// useRoutes makes s, which may be nil, feed the routes.
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

// onRoutes takes the answer of a RouteConfiguration that was asked for.
func (g *graph) onRoutes(s *routeSource, rc *xdsresource.RouteConfiguration, err error) {
	if s == g.nextRDS {
		if err != nil && g.current != nil && !doesNotExist(err) {
			logger.Warningf("Listener %q: the routes in use stay until RouteConfiguration %q can be had: %v", g.listener.Name, s.name, err)
			return
		}
		g.rds.stop()
		g.useRoutes(s)
	}
	if g.nextRDS != nil {
		// The Listener has moved on: what changes here is in use for as long
		// as the new RouteConfiguration has not answered, but the new
		// Listener does not apply to it.
		if err == nil && g.current != nil {
			g.adopt(g.current.listener, rc)
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

// isTransient reports whether err says nothing of a resource, but only that the server is
// unreachable which sent the configuration that the resource is for. What is in use can
// wait for it to come back. It does not wait for the servers of other authorities: an
// outage of one of them holds up its own resources, and not the routes that lead there
// among other places.
func (g *graph) isTransient(err error) bool {
	var e *xdsclient.Error
	return errors.As(err, &e) && e.Kind == xdsclient.KindUnreachable && xdsname.SameAuthority(e.Resource, g.lds.name)
}

// route makes the Listener's configuration with the given routes the one to
// use.
func (g *graph) route(rc *xdsresource.RouteConfiguration) { g.adopt(g.listener, rc) }

// adopt prepares a configuration and uses it once its clusters have answered.
func (g *graph) adopt(l *xdsresource.Listener, rc *xdsresource.RouteConfiguration) {
	vh := rc.VirtualHost(g.authority)
	if vh == nil {
		g.withdraw(fmt.Errorf("RouteConfiguration %q of Listener %q has no virtual host for authority %q (node id %q); "+
			"add the authority to the domains of one, or dial with grpc.WithAuthority", rc.Name, l.Name, g.authority, g.client.Bootstrap().Node.GetId()))
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
		n.awaited = !n.answered()
		if n.awaited {
			g.next.unanswered++
		}
	}
	g.settle()
}

// lastDestinations returns the clusters of the last route, which is the one
// that serves what no other does.
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
		if c.Name != "" { // It is named by a header otherwise.
			names = append(names, c.Name)
		}
	}
	return names
}

// settle puts next in the place of current if it is time.
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

// withdraw leaves the channel without a configuration, for the given reason.
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

// clusterChanged is called when the state of a cluster is another one.
func (g *graph) clusterChanged(n *clusterNode) {
	if n.awaited && n.answered() {
		n.awaited = false
		if g.next != nil && n.generation == g.next.generation {
			g.next.unanswered--
		}
		g.settle()
	}
	// A cluster that only next routes to is published with next.
	if g.current == nil {
		return
	}
	published, ok := g.edit().Get(n.name)
	if !ok || g.outgoing(n) && published.Err == nil && n.state.Err != nil {
		return
	}
	g.edit().Set(n.name, n.state)
	g.changed()
}

// outgoing reports whether a cluster is in use only until next takes its place. A
// control plane that deletes it with the last route to it deletes it too early: RPCs
// go there until the clusters of the new routes have answered.
func (g *graph) outgoing(n *clusterNode) bool {
	return g.next != nil && n.generation != g.next.generation
}
