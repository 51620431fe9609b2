package controlplane

import "google.golang.org/protobuf/types/known/anypb"

// A claim is what a delta client says in its first request that it has from an earlier stream: a name and a version. It is recorded as
// sent, and compared as what was sent on this stream is.

// claim records a resource that a client has, or may have, from an earlier stream.
func claim(name, version string) *entry {
	return &entry{resource: &Resource{name: name, version: version}}
}

// claimed reports whether the entry is a claim.
func (e *entry) claimed() bool { return e.asResource() != nil && e.resource.packed == nil }

// acceptClaim records a version that the client claims to have as sent. If too many claims are kept, those for
// names are forgotten, and those for members of collections are an error, as the client would keep what no
// longer exists. The caller holds Store.mu for reading, and stream.mu.
func (sub *subscription) acceptClaim(name, version string) error {
	key := keyOf(name)
	inGlob := key.collection != "" && sub.count(key.glob()) > 0
	switch {
	case key.leaf == wildcardName, sub.count(key) == 0 && !inGlob && !sub.wildcard():
		return nil // the request does not subscribe to it
	case sub.addressing == byLocators:
		return sub.acceptVariantClaim(name, version)
	}
	tp := topic{name: key}
	a := sub.askOf(tp)
	if now := sub.current(tp, a); now.asResource() != nil && now.resource.version == version {
		sub.setSentResource(tp, a, now)
	} else if err := sub.keepClaim(tp, name, version); err != nil && a == nil {
		return err
	} else if now == nil && sub.inCollection(tp, nil, true) {
		sub.items.addLater(tp, ifChanged)
	}
	switch {
	case !sub.wants(tp, nil):
		sub.items.addLater(tp, inAnyCase) // the client may take it for one that the wildcard covers
	case a != nil && key.collection != "" && sub.inCollection(tp, nil, false):
		sub.items.addLater(tp, inAnyCase) // after an error of the glob, the client has it for the name alone
	}
	return nil
}

// acceptVariantClaim is acceptClaim for a client that subscribes by locators. It cannot name the variant or the
// subscription: the claim counts where these are unambiguous, and elsewhere the resource is sent again.
func (sub *subscription) acceptVariantClaim(name, version string) error {
	key := keyOf(name)
	named := sub.count(key)
	isMember := sub.anyCollection(key, func(*ask) bool { return true })
	if named == 0 && sub.awaitsCollection(key) { // it is accepted when that opens
		return sub.keepClaim(topic{key, markVariant}, name, version)
	}
	if named == 1 {
		for a := range sub.asksFor(key) {
			tp, now := sub.topicOf(a), a.entryOf(sub)
			if now.asResource() != nil && now.resource.version == version {
				sub.setSentResource(tp, a, now)
			} else {
				_ = sub.keepClaim(tp, name, version)
				if key.collection != "" && sub.wildcard() {
					sub.items.has.set(topic{key, markVariant}, claim(name, version)) // see dueStillCovered
				}
			}
			if isMember || sub.wildcard() {
				sub.items.addLater(tp, inAnyCase)
			}
		}
	}
	if named > 0 && !isMember && !sub.wildcard() {
		return nil
	}
	chosen := map[*entry]bool{}
	for a := range sub.asksFor(key) {
		chosen[a.entryOf(sub)] = true
	}
	for _, e := range sub.table.entries(key) {
		tp := variantTopic(key, e.parameters())
		same := e.resource != nil && e.resource.version == version
		switch wanted := sub.wants(tp, e); {
		case wanted && same && named == 0:
			sub.items.has.set(tp, e)
		case wanted, same && sub.besideWildcard(tp, e) && !chosen[e]:
			// The client may have the variant: with another version, from before the error, which is none for a wildcard, for another
			// subscription, or as one that it takes for a member of the wildcard. It does not have the entry itself.
			sub.items.has.set(tp, &entry{resource: &Resource{name: e.name(), parameters: e.parameters(), packed: new(anypb.Any)}})
			sub.items.addLater(tp, inAnyCase)
		}
	}
	if named > 0 && !isMember || sub.hasOf(key) {
		return nil
	}
	// The variant, whichever it was and of which subscription, no longer exists.
	tp := topic{key, markVariant}
	if err := sub.keepClaim(tp, name, version); err != nil {
		return err
	}
	sub.items.addLater(tp, inAnyCase)
	return nil
}

// hasOf reports whether the client has, or is sent, a resource of a name, or awaits it: then none is removed by the name alone.
func (sub *subscription) hasOf(key nameKey) bool {
	for a := range sub.asksFor(key) {
		if e := a.entryOf(sub); e == awaited || e.asResource() != nil {
			return true
		}
	}
	for _, e := range sub.table.entries(key) {
		if e.resource != nil && sub.wants(variantTopic(key, e.parameters()), e) {
			return true
		}
	}
	return false
}

// acceptAwaiting accepts the claims that waited for a collection, of names that are in it now. Those of other names are for what no longer
// exists.
func (sub *subscription) acceptAwaiting(collection topic) {
	if sub.claims == 0 || sub.addressing == byNames {
		return
	}
	for key := range sub.table.members[collection.name.collection] {
		tp := topic{key, markVariant}
		c := sub.items.has.m[tp]
		if !c.claimed() || sub.awaitsCollection(key) {
			continue
		}
		if err := sub.acceptVariantClaim(c.resource.name, c.resource.version); err != nil {
			sub.stream.fail(err)
		}
		if sub.items.has.m[tp] == c { // it was accepted for other topics
			sub.forgetSent(tp)
		}
	}
}

// keepClaim records a claim, unless there are too many.
func (sub *subscription) keepClaim(tp topic, name, version string) error {
	weight := nameWeight(name, version)
	if has := sub.items.has.m[tp]; has.claimed() { // it counts already
		weight = max(0, weight-nameWeight(has.resource.name, has.resource.version))
	}
	if err := sub.stream.usage.take(ofVersions, weight); err != nil {
		return err
	}
	sub.claims += weight
	sub.items.has.set(tp, claim(name, version))
	return nil
}

// compareClaims is called when all that was due has been compared with what the client claims to have. The caller
// holds stream.mu.
func (sub *subscription) compareClaims() {
	if sub.claims > 0 && sub.items.noneDue() && len(sub.items.waiting.m) == 0 {
		sub.stream.usage.give(ofVersions, sub.claims)
		sub.claims = 0
	}
}
