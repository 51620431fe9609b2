package controlplane

import "maps"

// interest is what a client has made of a type so far.
type interest int

const (
	// interestUnknown: no request for the type has been taken in.
	interestUnknown interest = iota
	// interestLegacyWildcard: no request had a name (SotW) or the first one had
	// none (delta), which for a type with wildcard means all resources.
	interestLegacyWildcard
	// interestNamed: names were given at least once, or a delta client has
	// unsubscribed from "*", and "*" is not among the present ones. No names now
	// means no resources.
	interestNamed
	// interestWildcard: "*" is among the names.
	interestWildcard
)

func (i interest) wildcard() bool { return i == interestLegacyWildcard || i == interestWildcard }

// telling is how the changes of a subscription are told to its client.
type telling int

const (
	// tellAll: by everything that is subscribed (SotW, types with wildcard), so
	// that it does not matter which names changed.
	tellAll telling = iota
	// tellChanged: by what changed (SotW, other types).
	tellChanged
	// tellDifference: by the difference to what the client was told (delta).
	// Glob collections exist for this one only.
	tellDifference
)

// subscription is what one stream asks for of one type, the changes that are
// due to it, and what it was told.
type subscription struct {
	stream  *stream
	typeURL string
	telling telling

	// Written by the stream's reader under Store.mu, so that the reader may
	// read them without.

	// names maps what is subscribed by name to the client's spelling.
	names    map[nameKey]string
	interest interest

	// Guarded by stream.mu.
	pending pending
	// queued says that the subscription is among stream.dueSubs.
	queued bool
	// told is what the client was last told under a name, as far as that
	// decides what it has to be told. SotW: only errors, and absence where the
	// client was told of that by an error. Delta: everything; what is not here,
	// the client knows nothing of. Keys of globs are here, too: with the
	// collection's error, or with absence if it is in none.
	told     map[nameKey]*entry
	delivery delivery
}

// pending is what changed since the client was last told. It is bounded by what
// is subscribed and by what the client was told.
type pending struct {
	// all makes everything that is subscribed due, beside names.
	all bool
	// allAgain is that even of what the client was told already.
	allAgain bool
	// names says of each name whether it is due even if the client was told
	// already.
	names map[nameKey]bool
}

func (p *pending) empty() bool { return !p.all && len(p.names) == 0 }

func (p *pending) add(key nameKey, again bool) {
	if p.names == nil {
		p.names = map[nameKey]bool{}
	}
	p.names[key] = p.names[key] || again
}

// subscriptionChange is the difference that one request makes.
type subscriptionChange struct {
	// added are names that were not subscribed, with the client's spelling.
	added map[nameKey]string
	// repeated are names that were, and that a delta client asks for again.
	repeated []nameKey
	// removed are names that were subscribed, with the client's spelling.
	removed  map[nameKey]string
	interest interest
	// askedForAll: the request subscribes to the wildcard, perhaps again.
	askedForAll bool
	// known is what a delta client says it has from an earlier stream.
	known map[nameKey]*entry
}

func (c subscriptionChange) isNone(before interest) bool {
	return len(c.added) == 0 && len(c.repeated) == 0 && len(c.removed) == 0 && !c.askedForAll && c.interest == before
}

// usage returns how much more the client occupies after the change.
func (c subscriptionChange) usage() usage {
	u := usage{names: len(c.added) - len(c.removed)}
	for _, name := range c.added {
		u.bytes += len(name)
	}
	for _, name := range c.removed {
		u.bytes -= len(name)
	}
	for key, e := range c.known {
		if _, named := c.added[key]; !named {
			u.bytes += len(e.name()) + len(e.resource.version)
		}
	}
	return u
}

// diff compares the full list of names that a SotW request carries with what is
// subscribed.
func (sub *subscription) diff(names []string) subscriptionChange {
	wanted := nameSet(names)
	change := subscriptionChange{interest: sub.nextInterest(wanted), added: wanted, removed: map[nameKey]string{}}
	change.askedForAll = change.interest.wildcard() && !sub.interest.wildcard()
	if change.interest == interestWildcard {
		delete(wanted, wildcardKey)
	}
	for key, name := range sub.names {
		if _, ok := wanted[key]; !ok {
			change.removed[key] = name
		}
	}
	// What is left is new.
	maps.DeleteFunc(wanted, func(key nameKey, _ string) bool { return sub.named(key) })
	return change
}

var wildcardKey = keyOf(wildcardName)

// nameSet has the names by key; of two spellings the first counts.
func nameSet(names []string) map[nameKey]string {
	set := make(map[nameKey]string, len(names))
	for _, name := range names {
		key := keyOf(name)
		if _, ok := set[key]; !ok {
			set[key] = name
		}
	}
	return set
}

// nextInterest follows "How the client specifies what resources to return" of
// Envoy's description of the protocol, for SotW.
func (sub *subscription) nextInterest(wanted map[nameKey]string) interest {
	if !hasWildcard(sub.typeURL) {
		return interestNamed
	}
	if _, ok := wanted[wildcardKey]; ok {
		return interestWildcard
	}
	if len(wanted) == 0 && (sub.interest == interestUnknown || sub.interest == interestLegacyWildcard) {
		return interestLegacyWildcard
	}
	return interestNamed
}

// named says whether the name itself is subscribed.
func (sub *subscription) named(key nameKey) bool {
	_, ok := sub.names[key]
	return ok
}

// inGlob says whether the name is a member of a glob collection that is
// subscribed.
func (sub *subscription) inGlob(key nameKey) bool {
	return sub.telling == tellDifference && key.collection != "" && !key.isGlob() && sub.named(key.glob())
}

// wants says whether a resource of this name is subscribed in any way.
func (sub *subscription) wants(key nameKey) bool {
	return sub.interest.wildcard() || sub.named(key) || sub.inGlob(key)
}

// spelling returns the name as the client spells it, or as the entry does if
// the client did not ask for it by name.
func (sub *subscription) spelling(key nameKey, e *entry) string {
	if name, ok := sub.names[key]; ok {
		return name
	}
	return e.name()
}

// changed notes that what is under this name is not what the client was told
// last. The store calls it, for subscribed names only.
func (sub *subscription) changed(key nameKey, exists bool) {
	s := sub.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case sub.telling == tellAll:
		sub.pending.all = true
	case exists || sub.named(key) || sub.told[key] != nil:
		sub.pending.add(key, false)
	default:
		// It came and went while the client was not looking. Kept, such names
		// would grow without bound.
		delete(sub.pending.names, key)
	}
	s.markDue(sub)
}

// memberChanged is changed for a member of a subscribed glob collection.
func (sub *subscription) memberChanged(key nameKey, exists bool) {
	if sub.telling == tellDifference {
		sub.changed(key, exists)
	}
}

// remember notes what the client was told under a name. The caller holds
// stream.mu.
func (sub *subscription) remember(key nameKey, e *entry) {
	if sub.told == nil {
		sub.told = map[nameKey]*entry{}
	}
	sub.told[key] = e
}

// due notes what a change of the subscription itself makes due.
func (sub *subscription) due(change subscriptionChange, before interest) {
	s := sub.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	if sub.telling == tellDifference {
		sub.dueDifference(change, before)
	} else {
		sub.dueState(change)
	}
	s.markDue(sub)
}

// dueState is due for SotW: every name that is new is told, even if the client
// may know it from before.
func (sub *subscription) dueState(change subscriptionChange) {
	for key := range change.removed {
		delete(sub.pending.names, key)
		delete(sub.told, key)
	}
	if sub.telling == tellAll {
		sub.pending.all = sub.pending.all || change.askedForAll || len(change.added) > 0
		return
	}
	for key := range change.added {
		sub.pending.add(key, false)
	}
}

// takePending returns what is due and clears it. The caller holds stream.mu.
func (sub *subscription) takePending() pending {
	p := sub.pending
	sub.pending, sub.queued = pending{}, false
	return p
}

// sortedNames returns the subscribed names in order. The caller holds Store.mu.
func (sub *subscription) sortedNames() []string { return sortedKeys(maps.Values(sub.names)) }
