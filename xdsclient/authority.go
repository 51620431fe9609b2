package xdsclient

import (
	"slices"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
)

// authority is the cache of one xDS authority, which follows one of its servers; see fallback.go. It exists while
// the cache has a resource. Guarded by XDSClient.mu.
type authority struct {
	client *XDSClient
	key    authorityKey
	// servers are in the order of preference.
	servers []*bootstrap.Server
	// channels lead to the first of the servers, which are asked for all that is watched. The last
	// channel is that to the server that the authority follows. There are none while nothing is watched.
	channels []*managementServer
	// resources are the watched ones, and resources that a server has not been asked yet
	// to stop sending.
	resources map[resourceKey]*resource
	// watched counts the resources that are watched.
	watched int
	// lost says that no server can be reached, which was reported to the watchers.
	lost bool
	// disk is the level below the servers, or nil.
	disk *diskLevel
}

func newAuthority(c *XDSClient, key authorityKey, servers []*bootstrap.Server) *authority {
	a := &authority{
		client:    c,
		key:       key,
		servers:   servers,
		resources: make(map[resourceKey]*resource),
	}
	if k := c.diskWriter; k != nil {
		key.target = "" // one level is for all targets
		a.disk = k.levels[key]
		a.disk.await()
	}
	return a
}

// watch adds a watch of the resource that a locator names.
func (a *authority) watch(t *ResourceType, l wire.Locator, w *watch) {
	if !a.knowsVariants() {
		l.Constraints = dynparam.Constraints{}
	}
	key := resourceKey{t, l.Name, l.Constraints.Key()}
	r := a.resources[key]
	if r == nil {
		r = newResource(a, key, l.Constraints)
		a.resources[key] = r
	}
	if !r.watched() {
		a.subscribe(r)
	}
	r.addWatch(w)
	// While all servers that were tried are unreachable, a cached resource changes nothing.
	if !a.lost && a.active().link.Unreachable() && (a.atLast() || !r.cached()) {
		a.reconsider()
	}
}

// subscribe asks the servers for a resource that is about to be watched.
func (a *authority) subscribe(r *resource) {
	a.client.diskWriter.enters()
	if a.watched++; a.watched == 1 {
		a.addChannel()
	}
	r.link = nil
	for _, ch := range a.channels {
		ch.subscribe(r)
	}
	a.active().reinstate(r, nil)
	if a.lost {
		a.useOtherVariant(r)
		r.link = a.unreachable(r, a.failure())
	}
	if a.disk.reached() {
		a.disk.restore(r)
	}
}

// unwatch removes a watch. The last one of a resource unsubscribes from it.
func (a *authority) unwatch(w *watch) {
	r := w.resource
	if len(r.watches) == 1 {
		a.client.diskWriter.leaves(r)
	}
	r.watches = slices.DeleteFunc(r.watches, func(x *watch) bool { return x == w })
	if r.watched() {
		return
	}
	channels := a.channels
	if a.watched--; a.watched == 0 {
		a.leaveBelow(0)
		a.lost = false
	}
	for _, ch := range channels {
		ch.unsubscribe(r)
	}
}

// abandon ends all watches, before the channels close.
func (a *authority) abandon() {
	for _, r := range a.resources {
		for _, w := range r.watches {
			w.abandon()
		}
		r.watches = nil
	}
}

// forget notes that a server is no longer asked for a resource, and removes the resource from the cache
// if no server is.
func (a *authority) forget(r *resource) {
	if r.subscriptions--; r.subscriptions > 0 || r.watched() {
		return
	}
	if delete(a.resources, r.key); len(a.resources) == 0 {
		delete(a.client.authorities, a.key)
	}
}

// serversFor returns the servers of an authority, each once (gRFC A47).
func serversFor(cfg *bootstrap.Config, key authorityKey) ([]*bootstrap.Server, error) {
	servers := cfg.Servers
	if key.newStyle {
		a, err := cfg.Authority(key.name)
		if err != nil {
			return nil, err
		}
		servers = a.Servers
	}
	unique := make([]*bootstrap.Server, 0, len(servers))
	for _, s := range servers {
		if !slices.ContainsFunc(unique, func(u *bootstrap.Server) bool { return u.Key() == s.Key() }) {
			unique = append(unique, s)
		}
	}
	return unique, nil
}

// String names the authority, and its target if it has one, in the log.
func (k authorityKey) String() string {
	text := "old-style names"
	if k.newStyle {
		text = "authority " + faults.Quote(k.name)
	}
	if k.target != "" {
		text += " for " + k.target
	}
	return text
}
