package controlplane

import "maps"

// interest is what a client has made of a type so far.
type interest int

const (
	// interestUnknown: no request for the type has been taken in.
	interestUnknown interest = iota
	// interestLegacyWildcard: every request so far had no names, which for a
	// type with wildcard means all resources.
	interestLegacyWildcard
	// interestNamed: names were given at least once, and "*" is not among the
	// present ones. No names now means no resources.
	interestNamed
	// interestWildcard: "*" is among the names.
	interestWildcard
)

func (i interest) wildcard() bool { return i == interestLegacyWildcard || i == interestWildcard }

// subscription is what one stream asks for of one type, and the changes that
// are due to it.
type subscription struct {
	stream  *stream
	typeURL string
	// complete says that changes are told by sending all that is subscribed,
	// so that it does not matter which names changed.
	complete bool

	// Written by the stream's reader under Store.mu, so that the reader may
	// read them without.
	names    map[string]struct{}
	interest interest

	// Guarded by stream.mu.
	pending  pending
	delivery delivery
}

// pending is what changed since the client was last told. It is bounded by the
// names that are subscribed.
type pending struct {
	// all is set for complete subscriptions, instead of names.
	all   bool
	names map[string]struct{}
}

func (p *pending) empty() bool { return !p.all && len(p.names) == 0 }

func (p *pending) add(name string) {
	if p.names == nil {
		p.names = map[string]struct{}{}
	}
	p.names[name] = struct{}{}
}

// subscriptionChange is the difference that one request makes.
type subscriptionChange struct {
	added, removed []string
	interest       interest
}

// asksMore says whether the client asks for something it did not before.
func (c subscriptionChange) asksMore(before interest) bool {
	return len(c.added) > 0 || c.interest.wildcard() && !before.wildcard()
}

func (c subscriptionChange) isNone(before interest) bool {
	return len(c.added) == 0 && len(c.removed) == 0 && c.interest == before
}

// nameBytes returns how much longer the names are together.
func (c subscriptionChange) nameBytes() int {
	n := 0
	for _, name := range c.added {
		n += len(name)
	}
	for _, name := range c.removed {
		n -= len(name)
	}
	return n
}

// diff compares the full list of names that a request carries with what is
// subscribed.
func (sub *subscription) diff(names []string) subscriptionChange {
	wanted := make(map[string]struct{}, len(names))
	for _, name := range names {
		wanted[name] = struct{}{}
	}
	change := subscriptionChange{interest: sub.nextInterest(wanted)}
	if change.interest == interestWildcard {
		delete(wanted, wildcardName)
	}
	for name := range wanted {
		if _, ok := sub.names[name]; !ok {
			change.added = append(change.added, name)
		}
	}
	for name := range sub.names {
		if _, ok := wanted[name]; !ok {
			change.removed = append(change.removed, name)
		}
	}
	return change
}

// nextInterest follows "How the client specifies what resources to return" of
// Envoy's description of the protocol.
func (sub *subscription) nextInterest(wanted map[string]struct{}) interest {
	if !hasWildcard(sub.typeURL) {
		return interestNamed
	}
	if _, ok := wanted[wildcardName]; ok {
		return interestWildcard
	}
	if len(wanted) == 0 && (sub.interest == interestUnknown || sub.interest == interestLegacyWildcard) {
		return interestLegacyWildcard
	}
	return interestNamed
}

// wants says whether a resource of this name is subscribed.
func (sub *subscription) wants(name string) bool {
	if sub.interest.wildcard() {
		return true
	}
	_, ok := sub.names[name]
	return ok
}

// changed notes that the resource of this name is not what the client was told
// last. The store calls it, for subscribed names only.
func (sub *subscription) changed(name string) {
	s := sub.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	wasEmpty := sub.pending.empty()
	if sub.complete {
		sub.pending.all = true
	} else {
		sub.pending.add(name)
	}
	s.markDue(sub, wasEmpty)
}

// due notes what a change of the subscription itself makes due: every name that
// is new is told, even if the client may know it from before.
func (sub *subscription) due(change subscriptionChange, before interest) {
	s := sub.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	wasEmpty := sub.pending.empty()
	for _, name := range change.removed {
		delete(sub.pending.names, name)
	}
	switch {
	case !change.asksMore(before):
	case sub.complete:
		sub.pending.all = true
	default:
		for _, name := range change.added {
			sub.pending.add(name)
		}
	}
	s.markDue(sub, wasEmpty)
}

// takePending returns what is due and clears it. The caller holds stream.mu.
func (sub *subscription) takePending() pending {
	p := sub.pending
	sub.pending = pending{}
	return p
}

// sortedNames returns the subscribed names in order. The caller holds Store.mu.
func (sub *subscription) sortedNames() []string { return sortedKeys(maps.Keys(sub.names)) }
