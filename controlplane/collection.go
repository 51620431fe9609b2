package controlplane

// A collection, a glob or a wildcard, is closed to a subscription while its source has not answered
// that the members are there, or has answered an error. Until then the members are not the
// client's: it would take an incomplete collection for a complete one.

// closeUnanswered closes a collection that has just been subscribed to, unless it was answered. The caller holds Store.mu.
func (sub *subscription) closeUnanswered(tp topic, a *ask) {
	if a.demand == nil && !a.unshared || !(tp.name.isGlob() || sub.isWildcard(tp)) {
		return
	}
	if a.entryOf(sub) == nil {
		delete(sub.closed, tp)
		return
	}
	if sub.closed == nil {
		sub.closed = map[topic]bool{}
	}
	sub.closed[tp] = sub.closed[tp]
}

// wildcardClosed reports whether the wildcard, or each of several, is closed. The caller holds
// Store.mu.
func (s *selection) wildcardClosed() bool {
	if len(s.closed) == 0 || !hasWildcard(s.typeURL) {
		return false
	}
	if s.dialect == byNames {
		return s.isClosed(wildcardTopic)
	}
	any := false
	for a := range s.asksFor(wildcardKey) {
		if any = true; !s.isClosed(s.topicOf(a)) {
			return false
		}
	}
	return any
}

// isClosed reports whether a collection is closed.
func (s *selection) isClosed(tp topic) bool {
	_, closed := s.closed[tp]
	return closed
}

// reopenLater keeps for a closed collection that the client subscribed to it again.
func (s *selection) reopenLater(tp topic, again bool) { s.closed[tp] = s.closed[tp] || again }

// collectionAnswered opens or closes a collection that its source has answered. The caller holds
// Store.mu.
func (sub *subscription) collectionAnswered(t *table, a *ask, old, answer *entry) {
	s, tp := sub.stream, sub.topicOf(a)
	s.mu.Lock()
	defer s.mu.Unlock()
	sub.replaced(a, old)
	again := sub.closed[tp]
	if answer == nil {
		delete(sub.closed, tp)
		sub.acceptDeferred(t)
	} else {
		if sub.closed == nil {
			sub.closed = map[topic]bool{}
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
	for name, version := range sub.deferred {
		sub.acceptClaim(t, name, version)
	}
	sub.deferred = nil
}

// withholds reports whether a complete SotW response has to wait for a source: for the wildcard, or
// in the type's first response for any name, since clients take what it lacks for deleted. The
// caller holds Store.mu and stream.mu.
func (sub *subscription) withholds(t *table) bool {
	if t.source == nil || sub.mode != pushAll {
		return false
	}
	if len(sub.closed) > 0 {
		return true
	}
	if sub.delivery.reply != ReplyNone {
		return false
	}
	for a := range sub.asks() {
		if a.entryOf(sub) == awaited {
			return true
		}
	}
	return false
}
