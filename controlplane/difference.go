package controlplane

import "maps"

// difference takes in a delta request. A name that is in both lists stays
// subscribed, and is sent again.
func (sub *subscription) difference(subscribe, unsubscribe []string, versions map[string]string) subscriptionChange {
	asked, dropped := nameSet(subscribe), nameSet(unsubscribe)
	change := subscriptionChange{interest: sub.nextDeltaInterest(asked, dropped), removed: map[nameKey]string{}}
	if hasWildcard(sub.typeURL) {
		_, change.askedForAll = asked[wildcardKey]
		change.askedForAll = change.askedForAll || change.interest == interestLegacyWildcard && sub.interest == interestUnknown
		delete(asked, wildcardKey)
		delete(dropped, wildcardKey)
	}
	for key := range dropped {
		if _, ok := asked[key]; !ok && sub.named(key) {
			change.removed[key] = sub.names[key]
		}
	}
	maps.DeleteFunc(asked, func(key nameKey, _ string) bool {
		named := sub.named(key)
		if named {
			change.repeated = append(change.repeated, key)
		}
		return named
	})
	change.added = asked
	if sub.interest == interestUnknown {
		change.known = knownEntries(change, versions)
	}
	return change
}

// nextDeltaInterest follows "How the client specifies what resources to return"
// of Envoy's description of the protocol. Unlike SotW's, the legacy wildcard
// lasts until the client unsubscribes from "*".
func (sub *subscription) nextDeltaInterest(asked, dropped map[nameKey]string) interest {
	_, on := asked[wildcardKey]
	_, off := dropped[wildcardKey]
	switch {
	case !hasWildcard(sub.typeURL):
		return interestNamed
	case on:
		return interestWildcard
	case off:
		return interestNamed
	case sub.interest == interestUnknown && len(asked) > 0:
		return interestNamed
	case sub.interest == interestUnknown && len(dropped) == 0:
		return interestLegacyWildcard
	default:
		return sub.interest
	}
}

// knownEntries makes a record of what a reconnecting client says it has. What
// it does not subscribe to in the same request is not kept.
func knownEntries(change subscriptionChange, versions map[string]string) map[nameKey]*entry {
	known := make(map[nameKey]*entry, len(versions))
	for name, version := range versions {
		key := keyOf(name)
		_, named := change.added[key]
		_, inGlob := change.added[key.glob()]
		if key.isGlob() || !named && !change.interest.wildcard() && (key.collection == "" || !inGlob) {
			continue
		}
		known[key] = claim(name, version)
	}
	return known
}

// claim is the record of a resource that a client has or may have, which did
// not come from the store on this stream.
func claim(name, version string) *entry {
	return &entry{resource: &Resource{name: name, version: version}}
}

// dueDifference is due for delta. The caller holds stream.mu.
func (sub *subscription) dueDifference(change subscriptionChange, before interest) {
	forget := before.wildcard() && !sub.interest.wildcard()
	for key, name := range change.removed {
		forget = forget || key.isGlob()
		delete(sub.told, key)
		delete(sub.pending.names, key)
		if sub.wants(key) && !key.isGlob() {
			// The client cannot know whether the wildcard or a glob covers the
			// resource, and is told (Envoy, "Unsubscribing from Resources").
			sub.remember(key, claim(name, ""))
			sub.pending.add(key, true)
		}
	}
	if forget {
		sub.forgetUnwanted()
	}
	for key, e := range change.known {
		sub.remember(key, e)
	}
	// What the client asks for once more it may have dropped in between. Only
	// with the first request does it say what it has.
	again := before != interestUnknown
	for key := range change.added {
		sub.pending.add(key, again)
	}
	for _, key := range change.repeated {
		sub.pending.add(key, true)
	}
	if change.askedForAll {
		sub.pending.all = true
		sub.pending.allAgain = sub.pending.allAgain || again
	}
}

// forgetUnwanted drops what is not subscribed any more.
func (sub *subscription) forgetUnwanted() {
	if !sub.interest.wildcard() {
		sub.pending.all, sub.pending.allAgain = false, false
	}
	maps.DeleteFunc(sub.told, func(key nameKey, _ *entry) bool { return !sub.wants(key) })
	maps.DeleteFunc(sub.pending.names, func(key nameKey, _ bool) bool { return !sub.wants(key) })
}
