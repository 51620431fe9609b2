package controlplane

import (
	"maps"
	"slices"
	"time"
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
	// renewed are the topics whose resources' TTLs begin again.
	renewed map[topic]struct{}
	// changed is the time of the first update that made something due, zero if none did.
	changed time.Time
}

func (p *pending) empty() bool { return !p.all && len(p.topics) == 0 && len(p.renewed) == 0 }

func (p *pending) add(tp topic, again bool) {
	if p.topics == nil {
		p.topics = map[topic]bool{}
	}
	p.topics[tp] = p.topics[tp] || again
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

// dueChanges are the changes of one type that are due.
type dueChanges struct {
	sub     *subscription
	table   *table
	pending pending
}

// onlyRenewed reports whether nothing but heartbeats is due.
func (d dueChanges) onlyRenewed() bool { return !d.pending.all && len(d.pending.topics) == 0 }

// markDue queues sub if something of it is due. The caller holds mu.
func (s *stream) markDue(sub *subscription) {
	if sub.queued || sub.pending.empty() {
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

// takeDue returns what is due, in push order, and clears it. The caller holds Store.mu for
// reading, so that it sees whole updates. Nothing is due for a stream that has ended.
func (s *stream) takeDue() []dueChanges {
	if s.released {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	due := make([]dueChanges, 0, len(s.dueSubs))
	for _, sub := range s.dueSubs {
		p := sub.pending
		sub.pending, sub.queued = pending{}, false
		sub.delivery.sending = p.changed
		if t := s.store.tables[sub.typeURL]; t != nil && !p.empty() {
			due = append(due, dueChanges{sub, t, p})
		}
	}
	s.dueSubs = nil
	slices.SortStableFunc(due, func(a, b dueChanges) int {
		return pushRank(a.sub.typeURL) - pushRank(b.sub.typeURL)
	})
	return due
}

// postpone makes a topic that could not be sent due again. The caller holds stream.mu.
func (sub *subscription) postpone(tp topic, again bool) {
	sub.pending.add(tp, again)
	sub.stream.markDue(sub)
}

// due records what a change of the subscription makes due. t is its table; the caller holds
// Store.mu.
func (sub *subscription) due(t *table, change subscriptionChange, before interest) {
	s := sub.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	for tp := range change.removed {
		sub.answers.forget(tp.name)
		sub.sent.forget(tp)
		delete(sub.pending.topics, tp)
		sub.kept.restore(tp)
	}
	maps.DeleteFunc(sub.kept, func(tp topic, old *entry) bool { return !sub.wants(tp, old) })
	if sub.mode == pushDifference {
		sub.dueForDelta(t, change, before)
	} else {
		sub.dueForSotW(change)
	}
	s.markDue(sub)
}

// dueForSotW makes every new name due, even if the client may know it from before, and all if the
// client could take what it unsubscribed from for a resource that its wildcard covers.
func (sub *subscription) dueForSotW(change subscriptionChange) {
	if sub.mode == pushAll {
		sub.pending.all = sub.pending.all || change.askedForAll || len(change.added) > 0
	}
	for tp := range change.added {
		sub.requestedAgain(tp)
		sub.pending.add(tp, true)
	}
	for tp := range change.removed {
		sub.pending.all = sub.pending.all || sub.interest.wildcard() && !sub.table.inWildcard(tp.name)
	}
}

// dueForDelta makes due what a delta request changed or subscribed to again. The caller holds
// stream.mu.
func (sub *subscription) dueForDelta(t *table, change subscriptionChange, before interest) {
	forget := before.wildcard() && !sub.interest.wildcard()
	for tp, l := range change.removed {
		forget = forget || tp.name.isGlob() || sub.isWildcard(tp)
		sub.dueStillCovered(t, tp, l.name, change.had[tp])
	}
	if forget {
		sub.forgetUnwanted()
	}
	for name, version := range change.known {
		sub.acceptClaim(t, name, version)
	}
	// The client may have dropped what it subscribes to again: only its first request
	// lists what it has.
	again := before != interestUnknown
	for tp := range change.added {
		sub.dueNamed(tp, again)
	}
	for _, tp := range change.repeated {
		sub.dueNamed(tp, true)
	}
	if change.askedForAll {
		sub.pending.all = true
		sub.pending.allAgain = sub.pending.allAgain || again
		sub.requestedAgain(wildcardTopic)
	}
}

// dueNamed makes a topic that is subscribed by name due. The wildcard is due as a whole.
func (sub *subscription) dueNamed(tp topic, again bool) {
	if again {
		sub.requestedAgain(tp)
	}
	if !sub.isWildcard(tp) {
		sub.pending.add(tp, again)
	}
}

// dueStillCovered makes due what the wildcard or a glob covers of a name that the client
// unsubscribed from, or its removal, as the client cannot know whether they do (Envoy,
// "Unsubscribing from Resources"). had is what the client had for its subscription.
func (sub *subscription) dueStillCovered(t *table, tp topic, name string, had *entry) {
	if tp.name.isGlob() || sub.isWildcard(tp) {
		return
	}
	if sub.dialect == byNames {
		if sub.interest.wildcard() || sub.wants(tp, nil) {
			sub.sent.set(tp, claim(name, ""))
			sub.pending.add(tp, true)
		}
		return
	}
	for _, e := range t.entries(tp.name) {
		if covered := variantTopic(tp.name, e.parameters()); sub.wants(covered, e) {
			sub.pending.add(covered, true)
		}
	}
	if had != nil {
		covered := variantTopic(tp.name, had.parameters())
		sub.sent.set(covered, had)
		sub.pending.add(covered, true)
	}
}

// besideWildcard reports whether the client has a wildcard, and a resource that it could take for one
// that this covers.
func besideWildcard(s *selection, tp topic, had *entry) bool {
	return s.interest.wildcard() && !s.table.inWildcard(tp.name) && had.asResource() != nil
}

// acceptClaim records a version that the client claims to have as sent. A client that subscribes
// by locators cannot name the variant or the subscription: the claim counts where these are
// unambiguous, and elsewhere the resource is sent again.
func (sub *subscription) acceptClaim(t *table, name, version string) {
	key := keyOf(name)
	if sub.dialect == byNames {
		tp := topic{name: key}
		sub.sent.set(tp, claim(name, version))
		if !sub.wants(tp, nil) {
			sub.pending.add(tp, true) // the client may take it for one that the wildcard covers
		}
		return
	}
	if n := sub.count(key); n > 0 {
		for a := range sub.asksFor(key) {
			if n == 1 {
				sub.sent.set(sub.topicOf(a), claim(name, version))
			}
		}
		return
	}
	if len(sub.closed) > 0 {
		if sub.deferred == nil {
			sub.deferred = map[string]string{}
		}
		sub.deferred[name] = version
		return
	}
	covered := false
	for _, e := range t.entries(key) {
		tp := variantTopic(key, e.parameters())
		if !sub.wants(tp, e) {
			continue
		}
		covered = true
		if e.resource != nil && e.resource.version == version {
			sub.sent.set(tp, e)
		}
	}
	if !covered {
		// The variant, whichever it was, no longer exists.
		tp := topic{key, markVariant}
		sub.sent.set(tp, claim(name, version))
		sub.pending.add(tp, true)
	}
}

// forgetUnwanted drops the state of what is no longer subscribed. While there is a wildcard, the
// removal of what that does not cover is due, as the client cannot know.
func (sub *subscription) forgetUnwanted() {
	if !sub.interest.wildcard() {
		sub.pending.all, sub.pending.allAgain = false, false
	}
	maps.DeleteFunc(sub.sent.entries, func(tp topic, e *entry) bool {
		if sub.wants(tp, e) {
			return false
		}
		if besideWildcard(&sub.selection, tp, e) {
			sub.pending.add(tp, true)
			return false
		}
		return true
	})
	if sub.dialect == byNames && !sub.interest.wildcard() {
		maps.DeleteFunc(sub.pending.topics, func(tp topic, _ bool) bool { return !sub.wants(tp, nil) })
	}
}
