package xdsclient

import (
	"errors"
	"fmt"
	"strings"

	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// level is the cache of one server of an authority. It follows that server's answers.
// Guarded by XDSClient.mu.
type level struct {
	authority *authority
	server    *bootstrap.Server
	// index is the place in authority.levels.
	index int
	// channel leads to the server. It is nil while nothing is watched.
	channel *managementServer
	// resources are the watched ones, and resources that the server has not been asked yet
	// to stop sending.
	resources map[resourceKey]*resource
	// watched counts the resources that are watched.
	watched int
	// lost says, of the last level, that no server can be reached, which was reported to the
	// watchers.
	lost bool
}

// last reports whether there is no server below.
func (l *level) last() bool { return l.index == len(l.authority.levels)-1 }

// entryLike returns the entry for the same resource as that of another level, or nil.
func (l *level) entryLike(r *resource) *resource {
	c := r.memberOf
	if c == nil {
		return l.resources[r.key]
	}
	whole := l.resources[c.entry.key]
	if whole == nil {
		return nil
	}
	return whole.asCollection.cached[r.key]
}

// entryToWatch returns the entry for a key, which is about to get one more watch. The first one
// subscribes to it. from is the entry that the watch used before, or nil.
func (l *level) entryToWatch(key resourceKey, constraints dynparam.Constraints, from *resource) *resource {
	r, ok := l.resources[key]
	if !ok {
		r = newResource(l, key, constraints)
		l.resources[key] = r
	}
	first := len(r.watches) == 0
	diskWriter := l.authority.client.diskWriter
	if first {
		diskWriter.enters()
		l.subscribe(r)
	}
	if from != nil {
		r.inheritFrom(from, nil)
	}
	if first && (l.lost || l.authority.waited) && diskWriter.restore(r) {
		return r
	}
	if first && l.lost {
		l.useOtherVariant(r)
		r.link = l.unreachable(r, l.failure())
	}
	return r
}

// subscribe subscribes to a resource that is about to be watched.
func (l *level) subscribe(r *resource) {
	if l.watched++; l.channel == nil {
		l.channel = l.authority.client.channelTo(l.server)
		l.channel.levels[l] = struct{}{}
	}
	r.link = nil
	l.channel.subscribe(r)
	l.channel.reinstate(r)
}

// removeWatch removes a watch from a resource. The last one unsubscribes from it.
func (l *level) removeWatch(r *resource, w *watch) {
	if w.resource != r {
		r.standby--
	}
	if len(r.watches) == 1 {
		l.authority.client.diskWriter.leaves(r)
	}
	if r.removeWatch(w); len(r.watches) > 0 {
		return
	}
	ch := l.channel
	if l.watched--; l.watched == 0 {
		l.channel, l.lost = nil, false
		delete(ch.levels, l)
	}
	ch.unsubscribe(r)
}

// forget notes that the subscription to a resource was dropped, and removes the resource
// unless it is watched.
func (l *level) forget(r *resource) {
	if len(r.watches) > 0 {
		return
	}
	l.authority.client.ignored.remove(r)
	if delete(l.resources, r.key); len(l.resources) == 0 {
		l.authority.forgetIfEmpty()
	}
}

// serverDown notes that an attempt to reach the server failed. newReason says that the reason
// differs from that of the last attempt.
func (l *level) serverDown(newReason bool) {
	last := l.authority.levels[len(l.authority.levels)-1]
	known := last.lost
	for _, p := range l.authority.byTarget {
		if p.level == l {
			p.reconsider()
		}
	}
	if known && newReason {
		last.reportLoss()
	}
}

// serverUp notes that the server answered for the first time since it was unreachable.
func (l *level) serverUp() {
	for _, p := range l.authority.byTarget {
		if p.level.index > l.index && !p.level.channel.link.Healthy() {
			p.moveUp(l, l.channel.delivery)
		}
	}
}

// clearLoss ends the connectivity errors that the server's answer has not ended yet.
func (l *level) clearLoss() {
	if !l.lost {
		return
	}
	l.lost = false
	for _, r := range l.resources {
		r.clearLinkError()
	}
}

// reportLoss reports to the watchers that no server can be reached. Where nothing is cached,
// another cached variant that matches is used.
func (l *level) reportLoss() {
	l.lost = true
	failure := l.failure()
	for _, r := range l.resources {
		if len(r.watches) > 0 {
			if l.authority.client.diskWriter.restore(r) {
				continue
			}
			l.useOtherVariant(r)
		}
		r.setLinkError(l.unreachable(r, failure))
	}
}

// failure is why no server can be reached: the reason of the only server, or the reasons of all
// servers with their names.
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

// unreachable returns the Error for a resource while no server can be reached.
func (l *level) unreachable(r *resource, failure error) *Error {
	levels := l.authority.levels
	e := levels[0].channel.fault(KindUnreachable, r, failure)
	for _, below := range levels[1:] {
		e.Server += ", " + below.server.URI
	}
	return e
}

// inheritFrom takes over the state of an entry of another level, which a target that moves here used before, as far
// as the server has not answered for it. If other targets use the entry, it takes over only
// a version, and only if it has none. d is the response that is being worked on, or nil.
func (r *resource) inheritFrom(from *resource, d *delivery) {
	ch := r.level.channel
	ts, s := ch.typeState(r.key.typ), ch.subscriptionTo(r)
	ts.Disturb()
	watched := r.watched()
	if watched && (r.payload != nil || from.payload == nil) {
		return
	}
	took := r.inheritLastAnswer(s, from)
	if watched && !took {
		return
	}
	r.asCollection.inherit(from.asCollection)
	if watched {
		for w := range r.audience() {
			r.queueAllStates(w, d)
		}
		return
	}
	r.asCollection.keepOnly(from.asCollection)
}

// inheritLastAnswer takes over the version and the error of another entry, as far as the server has
// not answered the subscription, which is nil if it never did. It reports whether it took
// over a version.
func (r *resource) inheritLastAnswer(s *subscription, from *resource) bool {
	answered := s != nil && (s.payload != nil || s.lastError != nil)
	if !answered {
		r.state, r.fault = from.state, from.fault
	}
	if answered && (s.payload != nil || s.lastError.drop) {
		return false
	}
	r.payload, r.taken = from.payload, from.taken
	return r.payload != nil
}

// cached reports whether there is an answer that would still hold if no server could be
// reached: a version that a server sent, or that the resource does not exist (gRFC A71), or not for this
// client.
func (r *resource) cached() bool {
	return r.payload != nil && !r.taken.stored || r.fault != nil && r.fault.final()
}
