package resolver

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/dynxds/dynxds/balancer"
	"github.com/dynxds/dynxds/internal/pmap"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// transport is a Client whose resources the test gives.
type transport struct {
	xdstest.State
	t testing.TB
	// watches has the watchers of each resource: a channel may have several for
	// one cluster, if it is under an aggregate one.
	watches map[string][]xdsclient.Watcher
	ended   map[string]xdsclient.Watcher // the last one of each
}

func newTransport(t testing.TB) *transport {
	return &transport{t: t, watches: make(map[string][]xdsclient.Watcher), ended: make(map[string]xdsclient.Watcher)}
}

func (*transport) Bootstrap() *bootstrap.Config {
	return &bootstrap.Config{Node: &corev3.Node{Id: "node-1"}}
}

// WatchCollection is for other users of a Client: a channel has no collections.
func (c *transport) WatchCollection(typ *xdsclient.ResourceType, name string, _ xdsclient.CollectionWatcher) func() {
	c.t.Errorf("collection %s %s is watched", typ.Name, name)
	return func() {}
}

func (c *transport) Watch(typ *xdsclient.ResourceType, name string, w xdsclient.Watcher) func() {
	key := typ.Name + " " + name
	c.Change(func() {
		if slices.Contains(c.watches[key], w) {
			c.t.Errorf("%s is watched twice by one watcher", key)
		}
		c.watches[key] = append(c.watches[key], w)
	})
	return func() {
		c.Change(func() {
			c.ended[key] = w
			c.watches[key] = slices.DeleteFunc(c.watches[key], func(x xdsclient.Watcher) bool { return x == w })
			if len(c.watches[key]) == 0 {
				delete(c.watches, key)
			}
		})
	}
}

func (c *transport) watched() []string { return slices.Sorted(maps.Keys(c.watches)) }

// fixture is a graph over a fake transport.
type fixture struct {
	*transport
	graph   *graph
	changes int
	seen    *snapshot // the last one that was expected
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{transport: newTransport(t)}
	t.Cleanup(func() { names.forget(t) }) // After the graph is closed.
	f.listen("L")
	return f
}

// listen makes the graph one whose Listener has the given name.
func (f *fixture) listen(listener string) {
	f.graph = newGraph(f.transport, listener, "authority", func() { f.changes++ })
}

// answer gives the watches of that type and name an answer: a resource, or an error.
func (f *fixture) answer(key string, answer any) {
	f.t.Helper()
	watchers := slices.Clone(f.watches[key])
	if len(watchers) == 0 {
		f.t.Fatalf("%s is not watched; only %v", key, f.watched())
	}
	for _, w := range watchers {
		f.tell(w, answer)
	}
}

func (f *fixture) tell(w xdsclient.Watcher, answer any) {
	f.t.Helper()
	err, _ := answer.(error)
	done := 0
	w.ResourceChanged(answer, err, func() { done++ })
	xdstest.Equal(f.t, "how often done was called", 1, done)
}

// route answers the Listener and its routes.
func (f *fixture) route(clusters ...string) {
	f.t.Helper()
	f.answer("Listener L", toRDS("R"))
	f.answer("RouteConfiguration R", routes("R", clusters...))
}

// ambient reports an ambient error of a resource.
func (f *fixture) ambient(key string, err error) {
	f.t.Helper()
	done := 0
	if f.watches[key][0].AmbientError(err, func() { done++ }); done != 1 {
		f.t.Errorf("%s: done was called %d times, want once", key, done)
	}
}

// expect checks that the graph changed and what it is now, in the form
// "routes: cluster=endpoints cluster=!error cluster=? cluster=[cluster=endpoints]".
func (f *fixture) expect(want string) {
	f.t.Helper()
	if !f.see() {
		f.t.Errorf("the graph did not change")
	}
	xdstest.Equal(f.t, "snapshot", want, f.describe())
}

// see reports whether the snapshot differs from the last one that was seen. What has not changed in it has kept its pointer.
func (f *fixture) see() bool {
	f.t.Helper()
	before, s := f.seen, f.graph.snapshot(false)
	f.seen = s
	if s == before || s.config == nil && s.err == nil {
		return false
	}
	if before != nil && s.version <= before.version {
		f.t.Errorf("version %d follows %d", s.version, before.version)
	}
	if before != nil {
		f.keptPointers(before.clusters, s.clusters)
	}
	return true
}

func (f *fixture) keptPointers(before, now pmap.Map[*balancer.ClusterState]) {
	f.t.Helper()
	now.Diff(before, func(name string, b, n *balancer.ClusterState, had, has bool) {
		switch {
		case !had || !has:
		case b.Cluster == n.Cluster && b.Endpoints == n.Endpoints && sameError(b.Err, n.Err) &&
			(b.Underlying == n.Underlying || b.SameList(n) && b.Underlying.States.Same(n.Underlying.States)):
			f.t.Errorf("cluster %s has another state, but nothing of it has changed", name)
		case b.Underlying != nil && n.Underlying != nil:
			f.keptPointers(b.Underlying.States, n.Underlying.States)
		}
	})
}

func (f *fixture) describe() string {
	s := f.graph.snapshot(false)
	xdstest.Equal(f.t, "without news, the next snapshot is the last one", true, f.seen == nil || s == f.seen)
	if s.err != nil {
		return fmt.Sprintf("!%v, %d clusters", s.err, s.clusters.Len())
	}
	if s.config == nil {
		return "nothing"
	}
	var parts []string
	for name, c := range s.clusters.All {
		parts = append(parts, describeCluster(name, c))
	}
	slices.Sort(parts)
	return s.config.routes.Name + ": " + strings.Join(parts, " ")
}

func describeCluster(name string, c *balancer.ClusterState) string {
	switch {
	case c.Err != nil:
		return fmt.Sprintf("%s=!%v", name, c.Err)
	case c.Underlying != nil:
		parts := make([]string, len(c.Underlying.Names))
		for i, name := range c.Underlying.Names {
			s, _ := c.Underlying.States.Get(name)
			parts[i] = describeCluster(name, s)
		}
		return fmt.Sprintf("%s=%v", name, parts)
	case c.Endpoints == nil:
		return name + "=?"
	case c.Cluster != nil && c.Cluster.Kind == xdsresource.ClusterPlugin:
		return fmt.Sprintf("%s=(%s)", name, c.Cluster.LBConfig)
	}
	var addresses []string
	for _, l := range c.Endpoints.Localities {
		for _, e := range l.Endpoints {
			addresses = append(addresses, strings.Join(append([]string{e.Address}, e.Additional...), "+"))
		}
	}
	return name + "=" + strings.Join(addresses, ",")
}

func toRDS(name string) *xdsresource.Listener {
	return &xdsresource.Listener{Name: "L", RouteConfigName: name}
}

func routes(name string, clusters ...string) *xdsresource.RouteConfiguration {
	vh := &xdsresource.VirtualHost{Name: "host", Domains: []string{"authority"}}
	for _, c := range clusters {
		vh.Routes = append(vh.Routes, &xdsresource.Route{Settings: &xdsresource.Settings{Action: &xdsresource.Forward{
			Clusters: []xdsresource.WeightedCluster{{Name: c, Weight: 1}},
		}}})
	}
	return &xdsresource.RouteConfiguration{Name: name, VirtualHosts: []*xdsresource.VirtualHost{vh}}
}

func eds(service string) *xdsresource.Cluster {
	return &xdsresource.Cluster{EDSServiceName: service, LBPolicy: "round_robin"}
}

func endpoints(name, address string) *xdsresource.Endpoints {
	return &xdsresource.Endpoints{Name: name, Localities: []xdsresource.Locality{{
		Weight: 1, Endpoints: []xdsresource.Endpoint{{Address: address, Weight: 1}},
	}}}
}

func failure(kind xdsclient.ErrorKind, text string) error {
	return &xdsclient.Error{Kind: kind, Err: errors.New(text)}
}
