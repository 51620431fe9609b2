package controlplane

import (
	"maps"
)

// difference takes in a delta request. A topic that is in both sets stays
// subscribed, and is sent again.
func (sub *subscription) difference(asked, dropped map[topic]locator, versions map[string]string) subscriptionChange {
	change := subscriptionChange{interest: sub.nextDeltaInterest(asked, dropped), removed: map[topic]locator{}}
	if hasWildcard(sub.typeURL) {
		change.askedForAll = asksForWildcard(asked)
		change.askedForAll = change.askedForAll || change.interest == interestLegacyWildcard && sub.interest == interestUnknown
		delete(asked, wildcardTopic)
		delete(dropped, wildcardTopic)
	}
	for tp := range dropped {
		if _, ok := asked[tp]; !ok && sub.named(tp) {
			change.removed[tp] = sub.names[tp]
		}
	}
	maps.DeleteFunc(asked, func(tp topic, _ locator) bool {
		named := sub.named(tp)
		if named {
			change.repeated = append(change.repeated, tp)
		}
		return named
	})
	change.added = asked
	if sub.interest == interestUnknown {
		change.known = sub.heeded(change, versions)
	}
	return change
}

// nextDeltaInterest follows "How the client specifies what resources to return"
// of Envoy's description of the protocol. Unlike SotW's, the legacy wildcard
// lasts until the client unsubscribes from "*".
func (sub *subscription) nextDeltaInterest(asked, dropped map[topic]locator) interest {
	switch {
	case !hasWildcard(sub.typeURL):
		return interestNamed
	case sub.dialect == byLocators:
		return sub.nextLocatorInterest(asked, dropped)
	case asksForWildcard(asked):
		return interestWildcard
	case asksForWildcard(dropped):
		return interestNamed
	case sub.interest == interestUnknown && len(asked) > 0:
		return interestNamed
	case sub.interest == interestUnknown && len(dropped) == 0:
		return interestLegacyWildcard
	default:
		return sub.interest
	}
}

// nextLocatorInterest is for locators, of which several may be the wildcard.
func (sub *subscription) nextLocatorInterest(asked, dropped map[topic]locator) interest {
	if asksForWildcard(asked) {
		return interestWildcard
	}
	for tp := range sub.topics[wildcardKey] {
		if _, gone := dropped[tp]; !gone {
			return interestWildcard
		}
	}
	return interestNamed
}

// heeded returns the versions that matter, of those that a reconnecting client
// says it has. What it does not subscribe to in the same request does not.
func (sub *subscription) heeded(change subscriptionChange, versions map[string]string) map[string]string {
	asked := make(map[nameKey]bool, len(change.added))
	for tp := range change.added {
		asked[tp.name] = true
	}
	known := make(map[string]string, len(versions))
	for name, version := range versions {
		key := keyOf(name)
		inGlob := key.collection != "" && asked[key.glob()]
		if !key.isGlob() && (asked[key] || inGlob || change.interest.wildcard()) {
			known[name] = version
		}
	}
	return known
}

// claim is the record of a resource that a client has or may have, which did
// not come from the store on this stream.
func claim(name, version string) *entry {
	return &entry{resource: &Resource{name: name, version: version}}
}

// claimed reports whether the entry is a claim.
func (e *entry) claimed() bool { return e.resource != nil && e.resource.packed == nil }

// dueDifference is due for delta. The caller holds stream.mu.
func (sub *subscription) dueDifference(t *table, change subscriptionChange, before interest) {
	forget := before.wildcard() && !sub.interest.wildcard()
	for tp, l := range change.removed {
		forget = forget || tp.name.isGlob() || sub.isWildcard(tp)
		sub.dueStillCovered(t, tp, l.name)
	}
	if forget {
		sub.forgetUnwanted()
	}
	for name, version := range change.known {
		sub.takeClaim(t, name, version)
	}
	// What the client asks for once more it may have dropped in between. Only
	// with the first request does it say what it has.
	again := before != interestUnknown
	for tp := range change.added {
		sub.dueNamed(tp, again)
	}
	for _, tp := range change.repeated {
		sub.dueNamed(tp, true)
	}
	if change.askedForAll {
		sub.pending.all = true
		sub.pending.allAgain = sub.pending.allAgain || again
		sub.asksAgain(wildcardTopic)
	}
}

// dueNamed makes a topic due that is subscribed by name. The wildcard is due as
// a whole.
func (sub *subscription) dueNamed(tp topic, again bool) {
	if again {
		sub.asksAgain(tp)
	}
	if !sub.isWildcard(tp) {
		sub.pending.add(tp, again)
	}
}

// dueStillCovered makes due what the wildcard or a glob covers of a name that the
// client let go of. The client cannot know whether they do, and is told (Envoy,
// "Unsubscribing from Resources").
func (sub *subscription) dueStillCovered(t *table, tp topic, name string) {
	if tp.name.isGlob() || sub.isWildcard(tp) {
		return
	}
	if sub.dialect == byNames {
		if sub.wants(tp, nil) {
			sub.remember(tp, claim(name, ""))
			sub.pending.add(tp, true)
		}
		return
	}
	for _, e := range t.entries(tp.name) {
		if covered := variantTopic(tp.name, e.parameters()); sub.wants(covered, e) {
			sub.pending.add(covered, true)
		}
	}
}

// takeClaim takes a version that the client says it has for told. A client that
// subscribes by locators cannot say of which variant it is, or for which of its
// subscriptions: it is believed where that is clear, and told anew elsewhere.
func (sub *subscription) takeClaim(t *table, name, version string) {
	key := keyOf(name)
	if sub.dialect == byNames {
		sub.remember(topic{name: key}, claim(name, version))
		return
	}
	if len(sub.topics[key]) > 0 {
		for tp := range sub.topics[key] {
			if len(sub.topics[key]) == 1 {
				sub.remember(tp, claim(name, version))
			}
		}
		return
	}
	covered := false
	for _, e := range t.entries(key) {
		tp := variantTopic(key, e.parameters())
		if !sub.wants(tp, e) {
			continue
		}
		covered = true
		if e.resource != nil && e.resource.version == version {
			sub.remember(tp, e)
		}
	}
	if !covered {
		// Whichever it was, it is gone.
		tp := topic{key, markVariant}
		sub.remember(tp, claim(name, version))
		sub.pending.add(tp, true)
	}
}

// forgetUnwanted drops what is not subscribed any more.
func (sub *subscription) forgetUnwanted() {
	if !sub.interest.wildcard() {
		sub.pending.all, sub.pending.allAgain = false, false
	}
	maps.DeleteFunc(sub.told, func(tp topic, e *entry) bool { return !sub.wants(tp, e) })
	if sub.dialect == byNames {
		maps.DeleteFunc(sub.pending.topics, func(tp topic, _ bool) bool { return !sub.wants(tp, nil) })
	}
}
