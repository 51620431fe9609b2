package controlplane

import (
	"slices"

	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// markDue queues sub if something of it is due. The caller may change the items of sub.
func (s *stream) markDue(sub *subscription) {
	if sub.queued || sub.settling.Load() > 0 || sub.items.noneDue() {
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

// withStore calls f in the turn of the stream among those of its peer, with Store.mu held for reading, and mu; and again if something had to be computed.
func (s *stream) withStore(f func()) {
	for again := true; again; again = s.compute() {
		s.usage.peer.enter()
		s.store.mu.RLock()
		s.mu.Lock()
		f()
		s.mu.Unlock()
		s.store.mu.RUnlock()
		s.usage.peer.leave()
	}
}

// takeDue returns the subscriptions with something due, in push order, and takes them from the queue. The caller holds Store.mu for
// reading, so that it sees whole updates, and mu. Nothing is due for a stream that has ended or is about to, and nothing while
// constraints are to be computed, or the subscription to them changes and some are due: they are sent before the rest.
func (s *stream) takeDue() []*subscription {
	if s.released || s.failed() != nil {
		return nil
	}
	if dpds := s.subs[dynparam.MapTypeURL]; dpds != nil {
		if s.computing = dpds.nextComputed(); s.computing != nil || dpds.settling.Load() > 0 && !dpds.items.noneDue() {
			return nil
		}
	}
	due := s.dueSubs
	s.dueSubs = nil
	for _, sub := range due {
		sub.queued = false
	}
	due = slices.DeleteFunc(due, func(sub *subscription) bool { return sub.settling.Load() > 0 }) // due again when it is settled
	slices.SortStableFunc(due, func(a, b *subscription) int { return pushRank(a.typeURL) - pushRank(b.typeURL) })
	return due
}

// dueChanged makes a topic due that has changed, and the complete response that has it.
func (sub *subscription) dueChanged(tp topic) {
	if sub.mode == pushAll {
		sub.items.add(wholeList, ifChanged)
		if !sub.named(tp) {
			return // it is in the response
		}
	}
	sub.items.add(tp, ifChanged)
}

// dueStillCovered makes due what the wildcard or a glob covers of a name that the client
// unsubscribed from, or its removal, as the client cannot know whether they do (Envoy,
// "Unsubscribing from Resources"). had is what the client had for its subscription.
func (sub *subscription) dueStillCovered(tp topic, name string, had *entry) error {
	if tp.name.isGlob() || sub.isWildcard(tp) {
		return nil
	}
	if sub.addressing == byNames {
		if !sub.wildcard() && !sub.wants(tp, nil) {
			return nil
		}
		sub.items.add(tp, inAnyCase)
		return sub.keepClaim(tp, name, "") // of a client that does not read there may be ever more
	}
	still := false
	for _, e := range sub.table.entries(tp.name) {
		if covered := variantTopic(tp.name, e.parameters()); sub.wants(covered, e) {
			sub.items.add(covered, inAnyCase)
			still = true
		}
	}
	// A claim, which may be for a member of a collection, does not say of which variant. It no longer exists.
	unknown := topic{tp.name, markVariant}
	if had.claimed() {
		sub.items.has.set(unknown, had)
	} else if sub.besideWildcard(tp, had) {
		covered := variantTopic(tp.name, had.parameters())
		sub.items.has.set(covered, had)
		sub.items.add(covered, inAnyCase)
	}
	if !still && sub.count(tp.name) == 0 && sub.items.has.m[unknown].claimed() {
		sub.items.add(unknown, inAnyCase)
	}
	return nil
}

// besideWildcard reports whether the client has a wildcard, and a resource that it could take for one
// that this covers.
func (sub *subscription) besideWildcard(tp topic, had *entry) bool {
	return sub.wildcard() && tp.name.collection != "" && had.asResource() != nil
}
