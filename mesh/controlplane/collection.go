package controlplane

import "slices"

// A collection, a glob or a wildcard, is closed to a subscription while its source has not answered
// that the members are there, or has answered an error. Until then the members are not the
// client's: it would take an incomplete collection for a complete one.

// closeUnanswered closes a collection that has just been subscribed to, unless it was answered. The caller holds Store.mu.
func (sub *subscription) closeUnanswered(tp topic, a *ask) {
	if a.demand == nil && !a.unshared || !(tp.name.isGlob() || sub.isWildcard(tp)) {
		return
	}
	e := a.entryOf(sub)
	if e == nil {
		delete(sub.closed, tp)
		return
	}
	sub.refuseWildcard(tp, e)
	if sub.closed == nil {
		sub.closed = closedSet{}
	}
	sub.closed.openLater(tp, false)
}

// refuseWildcard ends the stream if the answer to a wildcard is an error. The caller holds Store.mu, and
// not stream.mu.
func (sub *subscription) refuseWildcard(tp topic, answer *entry) {
	if st := answer.asError(); st != nil && sub.isWildcard(tp) {
		sub.stream.fail(st.Err())
	}
}

// wildcardClosed reports whether the wildcard, or each of several, is closed. The caller holds
// Store.mu.
func (s *selection) wildcardClosed() bool {
	if len(s.closed) == 0 || !hasWildcard(s.typeURL) {
		return false
	}
	if s.dialect == byNames {
		return s.closed.has(wildcardTopic)
	}
	any := false
	for a := range s.asksFor(wildcardKey) {
		if any = true; !s.closed.has(s.topicOf(a)) {
			return false
		}
	}
	return any
}

// closedSet has the collections that are closed, and whether the client has subscribed to them again
// since.
type closedSet map[topic]bool

func (c closedSet) has(tp topic) bool {
	_, closed := c[tp]
	return closed
}

// openLater keeps that the client subscribed again.
func (c closedSet) openLater(tp topic, again bool) { c[tp] = c[tp] || again }

// collectionAnswered opens or closes a collection that its source has answered. The caller holds
// Store.mu.
func (sub *subscription) collectionAnswered(a *ask, old, answer *entry) {
	s, tp := sub.stream, sub.topicOf(a)
	sub.refuseWildcard(tp, answer)
	s.mu.Lock()
	defer s.mu.Unlock()
	sub.sent.replaced(a, old)
	again := sub.closed[tp]
	if answer == nil {
		delete(sub.closed, tp)
	} else {
		if sub.closed == nil {
			sub.closed = closedSet{}
		}
		sub.closed[tp] = again
	}
	if sub.mode == pushAll || sub.isWildcard(tp) {
		sub.pending.all = true
		sub.pending.allAgain = sub.pending.allAgain || again
	}
	if !sub.isWildcard(tp) {
		sub.pending.add(tp, again)
	}
	s.markDue(sub)
}

// acceptDeferred accepts the claims that waited for the members of the collections. Only the stream's sender calls it.
func (p *delta) acceptDeferred() error {
	turn := p.store.recording(p.stream)
	turn.lock()
	defer turn.unlock()
	for _, sub := range slices.Clone(p.dueSubs) {
		for name, version := range sub.deferred {
			if !turn.next() {
				return nil
			}
			if p.released || !sub.acceptsDeferred() {
				break
			}
			delete(sub.deferred, name)
			sub.claims--
			sub.stream.tab.give(ofVersions, 1)
			if err := sub.acceptClaim(sub.table, name, version); err != nil {
				return err
			}
		}
	}
	return nil
}

// acceptsDeferred reports whether there are claims that wait for nothing any more. The caller holds Store.mu for
// reading, and stream.mu.
func (sub *subscription) acceptsDeferred() bool {
	return len(sub.deferred) > 0 && len(sub.closed) == 0 && sub.settling == 0
}
