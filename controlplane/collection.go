package controlplane

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
func (sub *subscription) collectionAnswered(t *table, a *ask, old, answer *entry) {
	s, tp := sub.stream, sub.topicOf(a)
	sub.refuseWildcard(tp, answer)
	s.mu.Lock()
	defer s.mu.Unlock()
	sub.sent.replaced(a, old)
	again := sub.closed[tp]
	if answer == nil {
		delete(sub.closed, tp)
		sub.acceptDeferred(t)
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

// acceptDeferred accepts the claims that waited for the members of a collection. The caller holds
// Store.mu and stream.mu.
func (sub *subscription) acceptDeferred(t *table) {
	if len(sub.closed) > 0 {
		return
	}
	deferred := sub.deferred
	sub.deferred = nil
	for name, version := range deferred {
		sub.claims--
		sub.stream.tab.give(ofVersions, 1)
		if err := sub.acceptClaim(t, name, version); err != nil {
			sub.stream.failure = err
			sub.stream.signal()
			return
		}
	}
}
