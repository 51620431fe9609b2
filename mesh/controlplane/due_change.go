package controlplane

import (
	"maps"
	"slices"
)

// compare makes due what the change of the selection means for what the client knows, or claims to have.
func (r *resubscription) compare() error {
	r.turns = r.sub.stream.store.recording(r.sub.stream, r.sub.stream.yielding())
	r.lock()
	defer r.unlock()
	if r.sub.stream.released {
		return errClosed
	}
	sub := r.sub
	for tp, old := range sub.items.kept.m {
		if !sub.wants(tp, old) {
			sub.restore(tp)
		}
	}
	if err := r.compareRemoved(); err != nil {
		return err
	}
	if r.ended {
		return errClosed
	}
	switch sub.mode {
	case pushAll:
		differs := len(r.change.added) > 0
		for _, a := range r.change.removed {
			// The client could take what it unsubscribed from for a resource that its wildcard covers.
			differs = differs || sub.wildcard() && a.name.collection != ""
		}
		if differs {
			sub.items.add(wholeList, ifChanged)
		}
	case pushDifference:
		sub.compareClaims()
	}
	return nil
}

// compareRemoved forgets what was removed, makes due what a delta client may take for something that it still has, and records what it
// claims to have. The caller holds stream.mu.
func (r *resubscription) compareRemoved() error {
	sub, change, forget := r.sub, r.change, false
	for a := range inTurns(&r.turns, slices.Values(change.removed)) {
		tp := sub.topicOf(a)
		had := sub.items.has.m[tp]
		sub.forgetSent(tp)
		sub.items.drop(tp)
		if sub.computed[tp.name] != nil && sub.count(tp.name) == 0 {
			delete(sub.computed, tp.name)
		}
		if sub.mode == pushDifference {
			forget = forget || tp.name.isGlob() || sub.isWildcard(tp)
			if err := sub.dueStillCovered(tp, a.spelling, had); err != nil {
				return err
			}
		}
	}
	if sub.mode != pushDifference {
		return nil
	}
	if forget {
		r.forgetUnwanted()
	}
	for name := range inTurns(&r.turns, maps.Keys(change.known)) {
		if err := sub.acceptClaim(name, change.known[name]); err != nil {
			return err
		}
	}
	return nil
}

// dueNamed makes due what is subscribed by name.
func (sub *subscription) dueNamed(a *ask, how urgency) {
	tp := sub.topicOf(a)
	if how == inAnyCase {
		sub.requestedAgain(tp)
	}
	sub.items.addLater(tp, how)
	if sub.isCollection(tp) && sub.isWildcard(tp) && sub.wildcards <= crowd {
		sub.items.add(tp, how) // a client takes a response with some of many names for the whole wildcard
	}
}

// forgetUnwanted drops the state of what is no longer subscribed. While there is a wildcard, the
// removal of what that does not cover is due, as the client cannot know.
func (r *resubscription) forgetUnwanted() {
	sub := r.sub
	dropsDue := sub.addressing == byNames && !sub.wildcard()
	for tp := range inTurns(&r.turns, maps.Keys(sub.items.has.m)) {
		e := sub.items.has.m[tp]
		switch {
		case sub.wants(tp, e):
			if e.claimed() { // it may have waited for what was removed
				sub.items.addLater(tp, ifChanged)
			}
		case sub.besideWildcard(tp, e):
			sub.items.add(tp, inAnyCase)
		default:
			sub.forgetSent(tp)
			if dropsDue {
				sub.items.drop(tp)
			}
		}
	}
}
