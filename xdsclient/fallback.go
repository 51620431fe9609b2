package xdsclient

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Fallback between the servers of an authority (gRFC A71).
//
// An authority follows one server with all its watches: its cache has what that server says. What is watched is subscribed to
// at that server and at the servers above it in the list, which were unreachable and are still tried. Their
// answers stay with their subscriptions until the authority follows them.
//
// An authority moves down one server when its server becomes unreachable and something that is
// watched is not cached; if the next server is known to be unreachable, it moves on at once.
// While all is cached it stays, and nothing is reported to its watchers. Unreachable is a
// connectivity error as gRFC A57 defines it, and lasts until the next stream is open: whether
// that stream brings an answer is not known before it ends. Once the last server
// and all above it are unreachable, that is reported to the watchers.
//
// An authority moves up to any server above with the first answer of that server that is of use
// to it: a valid resource that is watched, or that a resource does not exist, or not for this
// client. If the server that it follows is unreachable itself, any answer from above is enough.
//
// This does not flap: the way down needs a failed attempt and something that is missing, the
// way up needs an answer, and backoff bounds the attempts to get one.
//
// An authority that moves takes over what the server has answered, and of other resources
// keeps what it has until the server answers. Watchers are called for differences. On a new stream
// resources of a server that the authority does not follow are requested without versions: the server would
// not repeat resources that the cache has from another server.
//
// An authority with several servers, and its streams, are for one target, so that a target that needs
// a new resource does not take along targets that have all they need.

// active returns the channel to the server that the authority follows, or nil while nothing is watched.
func (a *authority) active() *managementServer {
	if len(a.channels) == 0 {
		return nil
	}
	return a.channels[len(a.channels)-1]
}

// atLast reports whether there is no server below the one that the authority follows.
func (a *authority) atLast() bool { return len(a.channels) == len(a.servers) }

// addChannel has the authority follow the next server.
func (a *authority) addChannel() {
	ch := a.client.channelTo(a.servers[len(a.channels)], a.key.target)
	ch.authorities[a] = struct{}{}
	a.channels = append(slices.Clip(a.channels), ch)
}

// leaveBelow has the authority use the first n servers only, and returns the channels to the others.
func (a *authority) leaveBelow(n int) (left []*managementServer) {
	left, a.channels = a.channels[n:], a.channels[:n]
	for _, ch := range left {
		delete(ch.authorities, a)
	}
	return left
}

// serves reports whether the cache entry has what this server says.
func (ch *managementServer) serves(r *resource) bool { return r.authority.active() == ch }

// asksFor reports whether the server is to be asked for a resource.
func (ch *managementServer) asksFor(r *resource) bool {
	return r.watched() && slices.Contains(r.authority.channels, ch)
}

// standsBy reports whether the server is asked for a resource while the authority follows a server below.
func (ch *managementServer) standsBy(r *resource) bool {
	return !ch.serves(r) && ch.asksFor(r.watchedEntry())
}

// reconsider moves the authority on after its server became unreachable, or it watches something
// that is not cached.
func (a *authority) reconsider() {
	for ch := a.active(); ch != nil && ch.link.Unreachable(); ch = a.active() {
		if i := slices.IndexFunc(a.channels, func(above *managementServer) bool { return above.link.Healthy() }); i >= 0 {
			a.moveUp(i, nil)
			return
		}
		if a.atLast() {
			if !a.lost {
				a.reportLoss()
			}
			return
		}
		if !a.missesSomething() {
			return
		}
		a.moveDown()
	}
}

// missesSomething reports whether something that is watched is not cached.
func (a *authority) missesSomething() bool {
	for _, r := range a.resources {
		if r.watched() && !r.cached() {
			return true
		}
	}
	return false
}

// moveDown has the authority follow the next server.
func (a *authority) moveDown() {
	from := a.active()
	a.addChannel()
	to := a.active()
	for _, ts := range from.types { // the types in the order of their dependencies
		ts.disturb()
		for _, r := range a.resources {
			if r.watched() && r.key.typ == ts.typ {
				to.subscribe(r)
				to.reinstate(r, nil)
			}
		}
	}
	a.client.warningf("xDS management server %s is unreachable and resources of %s are missing: falling back to %s", from.server, a.key, to.server)
}

// moveUp has the authority follow a server above, and unsubscribes from the servers below it. d is the
// response that is being worked on, or nil.
func (a *authority) moveUp(index int, d *delivery) {
	from, to := a.active(), a.channels[index]
	below := a.leaveBelow(index + 1)
	a.lost = false
	a.client.infof("xDS management server %s takes over %s from %s", to.server, a.key, from.server)
	for _, r := range a.resources {
		if !r.watched() {
			continue
		}
		to.reinstate(r, d)
		for _, ch := range below {
			ch.unsubscribe(r)
		}
	}
}

// moveUpTo has the authority follow the server of a channel, which is above.
func (a *authority) moveUpTo(ch *managementServer) {
	a.moveUp(slices.Index(a.channels, ch), ch.delivery)
}

// serverDown notes that an attempt to reach a server failed. newReason says that the reason
// differs from that of the last attempt.
func (a *authority) serverDown(ch *managementServer, newReason bool) {
	known := a.lost
	if ch == a.active() {
		a.reconsider()
	}
	if known && newReason {
		a.reportLoss()
	}
}

// serverUp notes that a server answered for the first time since it was unreachable.
func (a *authority) serverUp(ch *managementServer) {
	if active := a.active(); ch != active && !active.link.Healthy() {
		a.moveUpTo(ch)
	}
}

// clearLoss ends the connectivity errors that the server's answer has not ended yet.
func (a *authority) clearLoss(ch *managementServer) {
	if !a.lost || ch != a.active() {
		return
	}
	a.lost = false
	for _, r := range a.resources {
		r.clearLinkError()
	}
}

// reportLoss reports to the watchers that no server can be reached. Where nothing is cached,
// another cached variant that matches is used, or the version on disk.
func (a *authority) reportLoss() {
	a.lost = true
	a.disk.reach()
	failure := a.failure()
	for _, r := range a.resources {
		if r.watched() {
			a.useOtherVariant(r)
		}
		r.setLinkError(a.unreachable(r, failure))
	}
}

// failure is why no server can be reached: the reason of the only server, or the reasons of all
// servers with their names.
func (a *authority) failure() error {
	if len(a.servers) == 1 {
		return a.active().link.Failure()
	}
	reasons := make([]string, len(a.channels))
	for i, ch := range a.channels {
		reasons[i] = fmt.Sprintf("%s: %v", ch.server, ch.link.Failure())
	}
	return errors.New(strings.Join(reasons, "; "))
}

// unreachable returns the Error for a resource while no server can be reached.
func (a *authority) unreachable(r *resource, failure error) *Error {
	e := a.channels[0].fault(KindUnreachable, r, failure)
	for _, below := range a.servers[1:] {
		e.Server += ", " + below.URI
	}
	return e
}
