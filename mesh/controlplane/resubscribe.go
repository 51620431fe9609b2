package controlplane

import (
	"maps"
	"slices"
)

// resubscription carries out a change of a subscription. Its size is the client's choice, so that Store.mu is
// held in turns. The client is sent nothing of the type until the change is complete (subscription.settling).
//
// Between two turns a topic may be subscribed and not due yet. An update of the store then makes it due as usual,
// and the rest of the change does so in any case.
type resubscription struct {
	turns
	sub    *subscription
	change *subscriptionChange
	// removed and added are the numbers of the asks that were left and joined in this turn, and are not
	// in subscription.names yet.
	removed, added []uint32
}

// resubscription returns a change of a subscription.
func (s *Store) resubscription(sub *subscription) *resubscription {
	r := &resubscription{turns: s.writing(sub.stream.yielding()), sub: sub}
	r.pause, r.resume = r.note, r.goesOn
	return r
}

// resubscribe changes a subscription, and records what that makes due. It returns RESOURCE_EXHAUSTED if the
// client's peer subscribes to too many names, and the stream is to end with it; and errClosed if the stream has ended. Only the stream's
// reader calls it.
func (s *Store) resubscribe(sub *subscription, change subscriptionChange) error {
	r := s.resubscription(sub)
	r.change = &change
	if err := r.choose(); err != nil {
		return err
	}
	if err := r.compare(); err != nil {
		return err
	}
	r.sortNames()
	sub.stream.settle(sub)
	return nil
}

// choose changes the selection, and makes due what the client has subscribed to. The client may have some of that from before; over delta,
// only the first request lists what the client has.
func (r *resubscription) choose() error {
	r.lock()
	defer r.unlock()
	defer r.note()
	if !r.goesOn() {
		return errClosed
	}
	sub := r.sub
	how := inAnyCase
	if sub.mode == pushDifference && sub.interest == interestUnknown {
		how = ifChanged
	}
	sub.settling.Add(1)
	for a := range inTurns(&r.turns, slices.Values(r.change.removed)) {
		r.leave(a)
	}
	r.note()
	for tp := range inTurns(&r.turns, maps.Keys(r.change.added)) {
		a, err := r.join(tp, r.change.added[tp])
		if err != nil {
			return err
		}
		sub.dueNamed(a, how)
	}
	for a := range inTurns(&r.turns, slices.Values(r.change.repeated)) {
		sub.dueNamed(a, inAnyCase)
	}
	if r.ended {
		return errClosed
	}
	sub.interest = r.change.interest
	return nil
}

// goesOn reports whether the stream does.
func (r *resubscription) goesOn() bool { return !r.sub.stream.released }

// note records what was left and joined in this turn.
func (r *resubscription) note() {
	if len(r.removed)+len(r.added) > 0 {
		r.sub.setNames(r.sub.names.change(r.removed, r.added))
		r.removed, r.added = r.removed[:0], r.added[:0]
	}
}

func (r *resubscription) leave(a *ask) {
	sub := r.sub
	if sub.addressing == byLocators { // see dueStillCovered
		sub.keepSent(a, a.entryOf(sub))
	}
	r.removed = append(r.removed, a.number)
	a.leave(sub)
}

func (r *resubscription) join(tp topic, l locator) (*ask, error) {
	sub := r.sub
	key := sub.keyFor(tp, &l)
	a := sub.table.ask(tp.name, key)
	if a == nil || len(a.own) > 0 {
		u := sub.stream.usage
		if err := u.peer.quotas.of[ofNames].Check(u.peer, nameWeight(l.name, key)); err != nil {
			return nil, u.exceeded(ofNames, err)
		}
	}
	if a == nil {
		a = sub.table.newAsk(sub, tp.name, key, l)
	}
	a.join(sub)
	r.added = append(r.added, a.number)
	tp = sub.topicOf(a)
	if sub.items.has.m[tp] == nil {
		sub.items.has.set(tp, nothing)
	}
	sub.refuseWildcard(a)
	return a, nil
}

// settle notes that a change of a subscription has ended.
func (s *stream) settle(sub *subscription) {
	s.store.mu.RLock()
	defer s.store.mu.RUnlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	left := sub.settling.Add(-1)
	s.markDue(sub)
	if left == 0 && len(s.dueSubs) > 0 { // which may have waited for this one
		s.signal()
	}
}

// release removes all subscriptions of a stream that has ended.
func (s *Store) release(st *stream) {
	// What is under way for the stream ends.
	s.mu.Lock()
	st.released = true
	s.mu.Unlock()
	st.usage.peer.enter()
	defer st.usage.peer.leave()
	turn := s.writing(st.usage.peer)
	turn.lock()
	defer turn.unlock()
	st.mu.Lock()
	subs := slices.Collect(maps.Values(st.subs))
	st.dropRetention()
	st.mu.Unlock()
	for _, sub := range subs {
		turn.next()
		// The reader, which may be comparing a last request with them, learns that they have changed.
		left := sub.names
		sub.setNames(nil)
		for _, number := range left {
			a := sub.table.index.asks.get(number)
			a.leave(sub)
			turn.next()
		}
		sub.table.index.subs.remove(sub.number)
		sub.number = 0
		s.dropIfUnused(sub.table)
	}
}
