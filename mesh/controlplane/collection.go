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
		sub.closed.open(tp)
		return
	}
	sub.refuseWildcard(tp, e)
	sub.closed.close(tp, e, false)
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
	if s.closed.len() == 0 || !hasWildcard(s.typeURL) {
		return false
	}
	if s.addressing == byNames {
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

// closedSet has the collections that are closed.
type closedSet struct {
	of map[topic]closedCollection
	// awaited counts those that are not answered.
	awaited int
}

type closedCollection struct {
	// again says that the client has subscribed to it again since it was closed.
	again bool
	// awaited says that it is not answered; otherwise it is in error.
	awaited bool
}

func (c *closedSet) len() int { return len(c.of) }

func (c *closedSet) has(tp topic) bool {
	_, closed := c.of[tp]
	return closed
}

// close adds a collection with its answer, or keeps that the client has subscribed to it again.
func (c *closedSet) close(tp topic, answer *entry, again bool) {
	if again = c.open(tp) || again; c.of == nil {
		c.of = map[topic]closedCollection{}
	}
	c.of[tp] = closedCollection{again, answer == awaited}
	if answer == awaited {
		c.awaited++
	}
}

// open removes a collection, and reports whether the client has subscribed to it again.
func (c *closedSet) open(tp topic) (again bool) {
	was := c.of[tp]
	if was.awaited {
		c.awaited--
	}
	delete(c.of, tp)
	return was.again
}

// collectionAnswered opens or closes a collection that its source has answered. The caller holds
// Store.mu.
func (sub *subscription) collectionAnswered(a *ask, old, answer *entry) {
	s, tp := sub.stream, sub.topicOf(a)
	sub.refuseWildcard(tp, answer)
	s.mu.Lock()
	defer s.mu.Unlock()
	sub.sent.replaced(a, old)
	again := sub.closed.open(tp)
	if answer != nil {
		sub.closed.close(tp, answer, again)
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
