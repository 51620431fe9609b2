package xdsclient

import (
	"errors"
	"fmt"
	"hash/maphash"
	"strings"

	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// level is the cache of one server of an authority. It follows what that server says.
// Guarded by XDSClient.mu.
type level struct {
	authority *authority
	server    *bootstrap.Server
	// index is the place in authority.levels.
	index int
	// channel leads to the server. It is nil while nothing is watched.
	channel *serverChannel
	// resources are those that are watched, and those of which the server has not
	// been told that they are not.
	resources map[resourceKey]*resource
	// watched counts the resources that are watched.
	watched int
	// lost says, of the last level, that no server can be reached, and that the
	// watchers have been told.
	lost bool
}

// last reports whether there is no server below.
func (l *level) last() bool { return l.index == len(l.authority.levels)-1 }

// find returns the entry of this level for what an entry of another level is for, or nil.
func (l *level) find(r *resource) *resource {
	c := r.collection
	if c == nil {
		return l.resources[r.key]
	}
	if c = l.resources[c.key]; c == nil {
		return nil
	}
	return c.members[r.key]
}

// want returns the entry for a key, which is about to get one more watch. A new one is
// subscribed to. from is the entry that the watch had before, or nil.
func (l *level) want(key resourceKey, constraints dynparam.Constraints, from *resource) *resource {
	r, ok := l.resources[key]
	if !ok {
		r = newResource(l, key, constraints)
		l.resources[key] = r
	}
	first := len(r.watches) == 0
	if first {
		l.begin(r)
	}
	if from != nil {
		r.inherit(from, nil)
	}
	if first && l.lost {
		l.borrow(r)
		r.link = l.unreachable(r, l.failure())
	}
	return r
}

// begin subscribes to a resource that is about to be watched.
func (l *level) begin(r *resource) {
	if l.watched++; l.channel == nil {
		l.channel = l.authority.client.channelTo(l.server)
		l.channel.levels[l] = struct{}{}
	}
	r.link = nil
	l.channel.subscribe(r)
	l.channel.reinstate(r)
}

// leave ends the interest of a watch in a resource.
func (l *level) leave(r *resource, w *watch) {
	if w.resource != r {
		r.standby--
	}
	if r.leave(w); len(r.watches) > 0 {
		return
	}
	ch := l.channel
	if l.watched--; l.watched == 0 {
		l.channel, l.lost = nil, false
		delete(ch.levels, l)
	}
	ch.unsubscribe(r)
}

// forget notes that the subscription to a resource was dropped. One that is not watched
// goes with it.
func (l *level) forget(r *resource) {
	if len(r.watches) > 0 {
		return
	}
	l.authority.client.ignored.remove(r)
	if delete(l.resources, r.key); len(l.resources) == 0 {
		l.authority.forgetIfEmpty()
	}
}

// serverDown says that an attempt to reach the server failed. news says that the reason
// is another than that of the attempt before.
func (l *level) serverDown(news bool) {
	last := l.authority.levels[len(l.authority.levels)-1]
	known := last.lost
	for _, p := range l.authority.parties {
		if p.level == l {
			p.review()
		}
	}
	if known && news {
		last.lose()
	}
}

// serverUp says that the server answered for the first time since it was unreachable.
func (l *level) serverUp() {
	for _, p := range l.authority.parties {
		if p.level.index > l.index && !p.level.channel.link.Healthy() {
			p.rise(l, l.channel.delivery)
		}
	}
	if !l.lost {
		return
	}
	l.lost = false
	for _, r := range l.resources {
		r.linkUp()
	}
}

// lose tells the watchers that no server can be reached. What is missing is taken from
// the cache if that has another variant of it that will do.
func (l *level) lose() {
	l.lost = true
	failure := l.failure()
	for _, r := range l.resources {
		if len(r.watches) > 0 {
			l.borrow(r)
		}
		r.linkDown(l.unreachable(r, failure))
	}
}

// failure is why no server can be reached: the reason of the only one, or all of
// them with their servers.
func (l *level) failure() error {
	levels := l.authority.levels
	if len(levels) == 1 {
		return l.channel.link.Failure()
	}
	reasons := make([]string, len(levels))
	for i, above := range levels {
		reasons[i] = fmt.Sprintf("%s: %v", above.server, above.channel.link.Failure())
	}
	return errors.New(strings.Join(reasons, "; "))
}

// unreachable makes the Error for a resource while no server can be reached.
func (l *level) unreachable(r *resource, failure error) *Error {
	levels := l.authority.levels
	e := levels[0].channel.fault(KindUnreachable, r, failure)
	for _, below := range levels[1:] {
		e.Server += ", " + below.server.URI
	}
	return e
}

// inherit has an entry take over what a party that moves to it had from another level, as
// far as the server has not spoken of it. If others hear of the entry, it takes over only a
// version, and only if it has none. d is the response that is being worked on, or nil.
func (r *resource) inherit(from *resource, d *delivery) {
	ch := r.level.channel
	ts, s := ch.typeState(r.key.typ), ch.subscriptionTo(r)
	ts.Disturb()
	heard := r.heard()
	if heard && (r.payload != nil || from.payload == nil) {
		return
	}
	took := r.inheritWord(s, from)
	if heard && !took {
		return
	}
	if took && s.members == nil {
		ts.index(s, maphash.Bytes(r.client().seed, r.payload.raw))
	}
	for key, m := range from.members {
		mine := r.members[key]
		if mine == nil {
			mine = &resource{key: key, level: r.level, parameters: m.parameters, collection: r}
			r.members[key] = mine
		}
		mine.inheritWord(s.members.get(key), m)
	}
	if heard {
		for w := range r.audience() {
			r.recountAll(w, d)
		}
		return
	}
	for key, m := range r.members {
		if from.members[key] == nil && s.members.get(key) == nil {
			delete(r.members, key)
			r.client().ignored.remove(m)
		}
	}
}

// inheritWord takes over what another entry has of a resource, as far as the server has
// not spoken of it by the subscription, which is nil if it never did. It reports whether
// it took over a version.
func (r *resource) inheritWord(s *subscription, from *resource) bool {
	spoke := s != nil && (s.payload != nil || s.lastError != nil)
	if !spoke {
		r.state, r.fault = from.state, from.fault
	}
	if spoke && (s.payload != nil || s.lastError.drop) {
		return false
	}
	r.payload, r.taken, r.saidIgnored = from.payload, from.taken, from.saidIgnored
	return r.payload != nil
}

// cached reports whether there is an answer about the resource that would still
// hold if no server could be reached: a version that can be used, or that the
// resource does not exist (gRFC A71), or not for this client.
func (r *resource) cached() bool {
	return r.payload != nil || r.fault != nil && r.fault.final()
}
