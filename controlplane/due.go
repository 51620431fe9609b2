package controlplane

import (
	"maps"
	"slices"
)

// pending is what changed since the last response. It is bounded by what is subscribed and
// by what the client was told.
type pending struct {
	// all makes everything that is subscribed due, beside topics.
	all bool
	// allAgain makes all due even where the client was told already.
	allAgain bool
	// topics says of each topic whether it is due even if the client was told already,
	// because it asked again.
	topics map[topic]bool
}

func (p *pending) empty() bool { return !p.all && len(p.topics) == 0 }

func (p *pending) add(tp topic, again bool) {
	if p.topics == nil {
		p.topics = map[topic]bool{}
	}
	p.topics[tp] = p.topics[tp] || again
}

// dueChanges are the changes that are due of one type.
type dueChanges struct {
	sub     *subscription
	pending pending
}

// markDue queues sub if something is due of it. The caller holds mu.
func (s *stream) markDue(sub *subscription) {
	if sub.queued || sub.pending.empty() {
		return
	}
	sub.queued = true
	s.dueSubs = append(s.dueSubs, sub)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// takeDue returns what is due, in push order, and clears it. The caller holds
// Store.mu for reading, so that it sees whole updates only. A stream that ended,
// and has no place in the store any more, has nothing due.
func (s *stream) takeDue() []dueChanges {
	if s.released {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	due := make([]dueChanges, 0, len(s.dueSubs))
	for _, sub := range s.dueSubs {
		if p := sub.takePending(); !p.empty() {
			due = append(due, dueChanges{sub, p})
		}
	}
	s.dueSubs = nil
	slices.SortStableFunc(due, func(a, b dueChanges) int {
		return pushRank(a.sub.typeURL) - pushRank(b.sub.typeURL)
	})
	return due
}

// takePending returns what is due and clears it. The caller holds stream.mu.
func (sub *subscription) takePending() pending {
	p := sub.pending
	sub.pending, sub.queued = pending{}, false
	return p
}

// postpone makes a topic due again that could not be told. The caller holds
// stream.mu.
func (sub *subscription) postpone(tp topic, again bool) {
	sub.pending.add(tp, again)
	sub.stream.markDue(sub)
}

// due notes what a change of the subscription itself makes due. The caller holds
// Store.mu, of which t is a table.
func (sub *subscription) due(t *table, change subscriptionChange, before interest) {
	s := sub.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	for tp := range change.removed {
		sub.answers.forget(tp.name)
		delete(sub.told, tp)
		delete(sub.pending.topics, tp)
		sub.kept.restore(tp)
	}
	maps.DeleteFunc(sub.kept, func(tp topic, old *entry) bool { return !sub.wants(tp, old) })
	if sub.telling == tellDifference {
		sub.dueForDelta(t, change, before)
	} else {
		sub.dueForSotW(change)
	}
	s.markDue(sub)
}

// dueForSotW makes every name that is new due, even if the client may know it from before.
func (sub *subscription) dueForSotW(change subscriptionChange) {
	if sub.telling == tellAll {
		sub.pending.all = sub.pending.all || change.askedForAll || len(change.added) > 0
	}
	for tp := range change.added {
		sub.asksAgain(tp)
		sub.pending.add(tp, true)
	}
}

// dueForDelta makes due what a delta request changed or asked for again. The caller holds stream.mu.
func (sub *subscription) dueForDelta(t *table, change subscriptionChange, before interest) {
	forget := before.wildcard() && !sub.interest.wildcard()
	for tp, l := range change.removed {
		forget = forget || tp.name.isGlob() || sub.isWildcard(tp)
		sub.dueStillCovered(t, tp, l.name)
	}
	if forget {
		sub.forgetUnwanted()
	}
	for name, version := range change.known {
		sub.believeClaim(t, name, version)
	}
	// The client may have dropped what it asks for again. Only with the first request
	// does it say what it has.
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
		sub.asksAgain(wildcardTopic)
	}
}

// dueNamed makes a topic due that is subscribed by name. The wildcard is due as
// a whole.
func (sub *subscription) dueNamed(tp topic, again bool) {
	if again {
		sub.asksAgain(tp)
	}
	if !sub.isWildcard(tp) {
		sub.pending.add(tp, again)
	}
}

// dueStillCovered makes due what the wildcard or a glob covers of a name that the client
// unsubscribed from. The client cannot know whether they do, and is told (Envoy,
// "Unsubscribing from Resources").
func (sub *subscription) dueStillCovered(t *table, tp topic, name string) {
	if tp.name.isGlob() || sub.isWildcard(tp) {
		return
	}
	if sub.dialect == byNames {
		if sub.wants(tp, nil) {
			sub.told.set(tp, claim(name, ""))
			sub.pending.add(tp, true)
		}
		return
	}
	for _, e := range t.entries(tp.name) {
		if covered := variantTopic(tp.name, e.parameters()); sub.wants(covered, e) {
			sub.pending.add(covered, true)
		}
	}
}

// believeClaim takes a version that the client says it has for told. A client that
// subscribes by locators cannot say of which variant it is, or for which of its
// subscriptions: it is believed where that is clear, and sent the resource again elsewhere.
func (sub *subscription) believeClaim(t *table, name, version string) {
	key := keyOf(name)
	if sub.dialect == byNames {
		sub.told.set(topic{name: key}, claim(name, version))
		return
	}
	if len(sub.topics[key]) > 0 {
		for tp := range sub.topics[key] {
			if len(sub.topics[key]) == 1 {
				sub.told.set(tp, claim(name, version))
			}
		}
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
			sub.told.set(tp, e)
		}
	}
	if !covered {
		// Whichever variant it was, it no longer exists.
		tp := topic{key, markVariant}
		sub.told.set(tp, claim(name, version))
		sub.pending.add(tp, true)
	}
}

// forgetUnwanted drops what is no longer subscribed.
func (sub *subscription) forgetUnwanted() {
	if !sub.interest.wildcard() {
		sub.pending.all, sub.pending.allAgain = false, false
	}
	maps.DeleteFunc(sub.told, func(tp topic, e *entry) bool { return !sub.wants(tp, e) })
	if sub.dialect == byNames {
		maps.DeleteFunc(sub.pending.topics, func(tp topic, _ bool) bool { return !sub.wants(tp, nil) })
	}
}
