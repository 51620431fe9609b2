package controlplane

import (
	"maps"
	"slices"
	"time"

	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// pending is what changed since the last response. Its size is bounded by what is subscribed
// and what the client knows.
type pending struct {
	// all makes everything that is subscribed due, beside topics.
	all bool
	// allAgain makes all due even if the client knows it.
	allAgain bool
	// topics has for each topic whether it is due even if the client knows it, as the
	// client subscribed again.
	topics map[topic]bool
	// later is the same for what the client has just subscribed to, of which a part is sent at a time. What
	// an update changes is in topics.
	later map[topic]bool
	// renewed are the topics whose resources' TTLs begin again.
	renewed map[topic]struct{}
	// changed is the time of the first update that made something due, zero if none did.
	changed time.Time
}

func (p *pending) empty() bool {
	return !p.all && len(p.topics) == 0 && len(p.later) == 0 && len(p.renewed) == 0
}

func (p *pending) add(tp topic, again bool) {
	if p.topics == nil {
		p.topics = map[topic]bool{}
	}
	p.topics[tp] = p.topics[tp] || p.later[tp] || again
	delete(p.later, tp)
}

// addLater is add for what the client has just subscribed to.
func (p *pending) addLater(tp topic, again bool) {
	if was, ok := p.topics[tp]; ok {
		p.topics[tp] = was || again
		return
	}
	if p.later == nil {
		p.later = map[topic]bool{}
	}
	p.later[tp] = p.later[tp] || again
}

func (p *pending) drop(tp topic) {
	delete(p.topics, tp)
	delete(p.later, tp)
}

// requested reports whether the topic is due even if the client knows it.
func (p *pending) requested(tp topic) bool { return p.topics[tp] || p.later[tp] }

// has reports whether the topic is due by itself.
func (p *pending) has(tp topic) bool {
	_, now := p.topics[tp]
	_, later := p.later[tp]
	return now || later
}

// promote moves some of later to topics, so that these are at least some, if there are as many.
func (p *pending) promote(some int) {
	for tp, again := range p.later {
		if len(p.topics) >= some {
			return
		}
		p.add(tp, again)
	}
}

// take removes all that is to be sent next: everything, but of later only so much that topics are some.
func (p *pending) take(some int) pending {
	p.promote(some)
	taken, rest := *p, p.later
	taken.later = nil
	*p = pending{}
	if len(rest) > 0 {
		p.later = rest
	}
	return taken
}

// updated notes the time of the update that makes something due, zero if it is none.
func (p *pending) updated(at time.Time) {
	if p.changed.IsZero() && !p.empty() {
		p.changed = at
	}
}

// merge adds what was due before.
func (p *pending) merge(earlier pending) {
	if !earlier.changed.IsZero() {
		p.changed = earlier.changed
	}
	p.all, p.allAgain = p.all || earlier.all, p.allAgain || earlier.allAgain
	for tp, again := range earlier.topics {
		p.add(tp, again)
	}
	if p.renewed == nil {
		p.renewed = earlier.renewed
	}
	maps.Copy(p.renewed, earlier.renewed)
}

// markDue queues sub if something of it is due. The caller holds mu.
func (s *stream) markDue(sub *subscription) {
	if sub.queued || sub.settling > 0 || sub.pending.empty() {
		return
	}
	sub.queued = true
	s.dueSubs = append(s.dueSubs, sub)
	s.signal()
}

// signal has the sender push.
func (s *stream) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// withStore calls f in the turn of the stream among those of its peer, with Store.mu held for reading.
func (s *stream) withStore(f func()) {
	s.usage.peer.enter()
	defer s.usage.peer.leave()
	s.store.mu.RLock()
	defer s.store.mu.RUnlock()
	f()
}

// takeDue returns the subscriptions with something due, in push order, and takes them from the queue. The caller holds Store.mu for
// reading, so that it sees whole updates, and mu. Nothing is due for a stream that has ended or is about to, and nothing while the
// subscription to constraints changes and constraints are due: they are sent before the rest.
func (s *stream) takeDue() []*subscription {
	if s.released || s.failure != nil {
		return nil
	}
	if dpds := s.subs[dynparam.MapTypeURL]; dpds != nil && dpds.settling > 0 && !dpds.pending.empty() {
		return nil
	}
	due := s.dueSubs
	s.dueSubs = nil
	for _, sub := range due {
		sub.queued = false
	}
	due = slices.DeleteFunc(due, func(sub *subscription) bool { return sub.settling > 0 }) // due again when it is settled
	slices.SortStableFunc(due, func(a, b *subscription) int { return pushRank(a.typeURL) - pushRank(b.typeURL) })
	return due
}

// postpone makes a topic that could not be sent due again. The caller holds stream.mu.
func (sub *subscription) postpone(tp topic, again bool) {
	sub.pending.add(tp, again)
	sub.stream.markDue(sub)
}

// dueStillCovered makes due what the wildcard or a glob covers of a name that the client
// unsubscribed from, or its removal, as the client cannot know whether they do (Envoy,
// "Unsubscribing from Resources"). had is what the client had for its subscription.
func (sub *subscription) dueStillCovered(tp topic, name string, had *entry) {
	if tp.name.isGlob() || sub.isWildcard(tp) {
		return
	}
	if sub.addressing == byNames {
		if sub.interest.wildcard() || sub.wants(tp, nil) {
			sub.sent.set(tp, claim(name, ""))
			sub.pending.add(tp, true)
		}
		return
	}
	still := false
	for _, e := range sub.table.entries(tp.name) {
		if covered := variantTopic(tp.name, e.parameters()); sub.wants(covered, e) {
			sub.pending.add(covered, true)
			still = true
		}
	}
	// A claim, which may be for a member of a collection, does not say of which variant. It no longer exists.
	if had != nil && (!had.claimed() || !still && sub.count(tp.name) == 0) {
		covered := variantTopic(tp.name, had.parameters())
		sub.sent.set(covered, had)
		sub.pending.add(covered, true)
	}
}

// besideWildcard reports whether the client has a wildcard, and a resource that it could take for one
// that this covers.
func (s *selection) besideWildcard(tp topic, had *entry) bool {
	return s.interest.wildcard() && tp.name.collection != "" && had.asResource() != nil
}
