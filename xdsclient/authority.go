package xdsclient

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// authorityState says how an authority stands with its servers.
type authorityState int

const (
	// authorityIdle: nothing is watched, and no server is engaged.
	authorityIdle authorityState = iota
	// authorityServed: the server in use answers, or it is not known yet
	// whether it does.
	authorityServed
	// authorityCoasting: the server in use is unreachable, but everything that
	// is watched is cached, so the servers below are left alone. Watchers hear
	// nothing.
	authorityCoasting
	// authorityLost: all servers are engaged and none answers. Watchers have
	// been told.
	authorityLost
)

// authority is the cache of one authority and its way to the servers. It exists
// while it has a resource. Guarded by XDSClient.mu.
//
// # Fallback between servers (gRFC A71)
//
// The engaged servers are the first few of the list: all that is watched is
// subscribed to at each of them. The last of them is the one in use: the cache
// follows what it says, and its resource timers count. Those above it were
// unreachable; they are tried on.
//
//	        watch                 in use unreachable, all watched is cached
//	Idle ───────────▶ Served ───────────────────────────────────▶ Coasting
//	 ▲                │ ▲  ▲                                        │  │
//	 └── last watch   │ │  └─────── the server in use answers ──────┘  │
//	     stops        │ └────────── a watch of something not cached: ──┘
//	   (from any)     │               the next server is engaged
//	                  │ in use and all above it unreachable,
//	                  ▼ none below
//	                Lost ──▶ Served: any of them answers
//
// In Served, when the server in use becomes unreachable and something watched is
// not cached, the next server is engaged and is the one in use from then on; if
// that one is known to be unreachable, the one after it at once. Unreachable is
// what gRFC A57 calls a connectivity error, and lasts until the next stream is
// open: whether that one brings an answer is not decided before it ends.
//
// The way up is one step to any server above: it takes over, and those below it
// are left, with the first thing it says that is of use (authority.heeds): a
// valid resource of the authority, or that it does not have one, or not for this
// client. What else it says of resources is held until then. If the server in use
// is unreachable itself, any answer from above is enough.
//
// There is no flapping. The way down needs a failed attempt and something that is
// missing; the way up needs an answer, and no more than one attempt per step of
// the backoff is made to get one.
//
// A server that takes over has its own word for each resource it spoke of (kept
// by its subscriptions); the rest stays cached from where it came, as it is
// better than nothing, until the server says otherwise. Each server is asked for
// everything afresh, without versions, on a stream that begins while it is not
// the one in use: it would not repeat what the cache has replaced since.
//
// Each step costs time in proportion to the resources of the authority, and with
// the failed attempts that lead to it backoff bounds their number.
type authority struct {
	client *XDSClient
	key    authorityKey
	// servers are the authority's servers, the preferred one first, each once.
	servers []*bootstrap.Server
	// variants says that one of the servers can be asked for variants of resources
	// (xRFC TP2). If none can, constraints choose nothing, and all watches of a name
	// are of one resource.
	variants bool
	state    authorityState
	// channels lead to the engaged servers: the first len(channels) of servers.
	channels []*serverChannel
	// resources are those that are watched, and those of which a server has not
	// been told that they are not.
	resources map[resourceKey]*resource
	// watched counts the resources that are watched.
	watched int
}

// serversFor returns the servers of an authority, each once (gRFC A47).
func serversFor(cfg *bootstrap.Config, key authorityKey) ([]*bootstrap.Server, error) {
	servers := cfg.Servers
	if key.newStyle {
		a, ok := cfg.Authorities[key.name]
		switch {
		case ok:
			servers = a.Servers
		case key.name == "" && len(cfg.Authorities) > 0:
			return nil, fmt.Errorf(`xDS bootstrap %s: the name has no authority; authorities has no entry "" for such names, only %s`,
				cfg.Source, quoteNames(slices.Sorted(maps.Keys(cfg.Authorities))))
		case key.name == "":
			return nil, fmt.Errorf(`xDS bootstrap %s: the name has no authority; authorities has no entry "" for such names, it is empty`, cfg.Source)
		default:
			_, err := cfg.ServersFor(key.name)
			return nil, err
		}
	}
	unique := make([]*bootstrap.Server, 0, len(servers))
	for _, s := range servers {
		if !slices.ContainsFunc(unique, func(u *bootstrap.Server) bool { return u.Key() == s.Key() }) {
			unique = append(unique, s)
		}
	}
	return unique, nil
}

// quoteNames lists names for an error.
func quoteNames(names []string) string {
	const limit = 10
	more := ""
	if extra := len(names) - limit; extra > 0 {
		names, more = names[:limit], fmt.Sprintf(" and %d more", extra)
	}
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = quoteName(name)
	}
	return strings.Join(quoted, ", ") + more
}

// String names the authority in the log.
func (a *authority) String() string {
	if !a.key.newStyle {
		return "old-style names"
	}
	return "authority " + quoteName(a.key.name)
}

// inUse returns the channel that the cache follows, or nil if the authority is
// idle.
func (a *authority) inUse() *serverChannel {
	if len(a.channels) == 0 {
		return nil
	}
	return a.channels[len(a.channels)-1]
}

// watch adds a watcher to what a locator stands for.
func (a *authority) watch(t *ResourceType, l locator, w *watch) {
	if !a.variants {
		l.constraints = dynparam.Constraints{}
	}
	key := resourceKey{t, l.name, l.constraints.Key()}
	r, ok := a.resources[key]
	if !ok {
		r = newResource(a, key, l.constraints)
		a.resources[key] = r
	}
	if len(r.watches) > 0 {
		r.join(w)
		return
	}
	a.begin(r)
	r.join(w)
	// While the authority coasts, what is cached changes nothing.
	if a.state == authorityServed || a.state == authorityCoasting && !r.cached() {
		a.review()
	}
}

// begin subscribes to a resource that is about to be watched.
func (a *authority) begin(r *resource) {
	a.watched++
	if a.state == authorityIdle {
		a.state = authorityServed
		a.engage()
	}
	for _, ch := range a.channels {
		ch.subscribe(r)
	}
	a.inUse().reinstate(r, nil)
	if r.link = nil; a.state == authorityLost {
		a.borrow(r)
		r.link = a.unreachable(r, a.failure())
	}
}

// unwatch removes a watcher.
func (a *authority) unwatch(r *resource, w *watch) {
	if r.leave(w); len(r.watches) > 0 {
		return
	}
	channels := a.channels
	if a.watched--; a.watched == 0 {
		a.state, a.channels = authorityIdle, nil
		for _, ch := range channels {
			delete(ch.authorities, a)
		}
	}
	for _, ch := range channels {
		ch.unsubscribe(r)
	}
}

// forget notes that a subscription to a resource was dropped. With its last one a
// resource that is not watched goes, and with the last resource the authority.
func (a *authority) forget(r *resource) {
	if r.subscriptions--; r.subscriptions > 0 || len(r.watches) > 0 {
		return
	}
	a.client.leftCache(r)
	if delete(a.resources, r.key); len(a.resources) == 0 {
		delete(a.client.authorities, a.key)
	}
}

// engage subscribes to what is watched at the next server, which is then the one
// in use.
func (a *authority) engage() {
	from, ch := a.inUse(), a.client.channelTo(a.servers[len(a.channels)])
	ch.authorities[a] = struct{}{}
	a.channels = append(a.channels, ch)
	if from == nil {
		return
	}
	for _, ts := range from.types { // the types in the order of their dependencies
		for s := range ts.subs.all() {
			if s.resource.authority == a && s.wanted() {
				ch.subscribe(s.resource)
				ch.reinstate(s.resource, nil)
			}
		}
	}
}

// review moves the authority on after the server in use became unreachable, or
// something that is not cached is watched.
func (a *authority) review() {
	for a.inUse().unreachable() {
		if i := slices.IndexFunc(a.channels, (*serverChannel).healthy); i >= 0 {
			a.takeOver(i, nil)
			break
		}
		if len(a.channels) == len(a.servers) {
			a.lose()
			return
		}
		if !a.lacks() {
			a.state = authorityCoasting
			return
		}
		from := a.inUse()
		a.engage()
		a.client.warningf("xDS management server %s is unreachable and resources of %s are missing: falling back to %s", from.server, a, a.inUse().server)
	}
	a.state = authorityServed
}

// lacks reports whether something that is watched is not cached.
func (a *authority) lacks() bool {
	for _, r := range a.resources {
		if len(r.watches) > 0 && !r.cached() {
			return true
		}
	}
	return false
}

// takeOver makes an engaged server the one in use and leaves those below it. The
// cache takes up what the server has said so far; d is the response that is being
// worked on, or nil.
func (a *authority) takeOver(i int, d *delivery) {
	ch, below := a.channels[i], slices.Clone(a.channels[i+1:])
	clear(a.channels[i+1:])
	a.channels, a.state = a.channels[:i+1], authorityServed
	for _, left := range below {
		a.client.infof("xDS management server %s takes over %s from %s", ch.server, a, left.server)
		delete(left.authorities, a)
	}
	for _, r := range a.resources {
		if len(r.watches) == 0 {
			continue
		}
		for _, left := range below {
			left.unsubscribe(r)
		}
		ch.reinstate(r, d)
	}
}

// heeds reports whether the cache follows what the server of ch says of a
// resource of the authority. If it is of use, a server above the one in use takes
// over.
func (a *authority) heeds(ch *serverChannel, ofUse bool, d *delivery) bool {
	switch i := slices.Index(a.channels, ch); {
	case i < 0:
		return false
	case i == len(a.channels)-1:
		return true
	case ofUse:
		a.takeOver(i, d)
		return true
	default:
		return false
	}
}

// serverDown says that an attempt to reach an engaged server failed. news says
// that the reason is another than that of the attempt before.
func (a *authority) serverDown(news bool) {
	if a.state != authorityLost {
		a.review()
	} else if news {
		a.lose()
	}
}

// serverUp says that an engaged server answered for the first time since it was
// unreachable.
func (a *authority) serverUp(ch *serverChannel) {
	lost := a.state == authorityLost
	switch {
	case ch == a.inUse():
		a.state = authorityServed
	case a.inUse().healthy():
		return
	default:
		a.takeOver(slices.Index(a.channels, ch), ch.delivery)
	}
	if !lost {
		return
	}
	for _, r := range a.resources {
		r.linkUp()
	}
}

// lose tells the watchers that no server can be reached. What is missing is taken from
// the cache if that has another variant of it that will do.
func (a *authority) lose() {
	a.state = authorityLost
	failure := a.failure()
	for _, r := range a.resources {
		if len(r.watches) > 0 {
			a.borrow(r)
		}
		r.linkDown(a.unreachable(r, failure))
	}
}

// failure is why no server can be reached: the reason of the only one, or all of
// them with their servers.
func (a *authority) failure() error {
	if len(a.channels) == 1 {
		return a.channels[0].failure
	}
	reasons := make([]string, len(a.channels))
	for i, ch := range a.channels {
		reasons[i] = fmt.Sprintf("%s: %v", ch.server, ch.failure)
	}
	return errors.New(strings.Join(reasons, "; "))
}

// unreachable makes the Error for a resource while no server can be reached.
func (a *authority) unreachable(r *resource, failure error) *Error {
	e := a.channels[0].fault(KindUnreachable, r, failure)
	for _, ch := range a.channels[1:] {
		e.Server += ", " + ch.server.URI
	}
	return e
}

// cached reports whether there is an answer about the resource that would still
// hold if no server could be reached: a version that can be used, or that the
// resource does not exist (gRFC A71), or not for this client.
func (r *resource) cached() bool {
	return r.payload != nil || r.fault != nil && r.fault.final()
}

// final reports whether the error is a server's last word on a resource, of which
// another server would know no better.
func (e *Error) final() bool {
	return e.Kind == KindDoesNotExist || e.Kind == KindServer && e.Code == codes.PermissionDenied
}
