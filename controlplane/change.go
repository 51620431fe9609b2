package controlplane

import (
	"maps"
)

// subscriptionChange is the difference that one request makes.
type subscriptionChange struct {
	// added are new topics, with the client's locators.
	added map[topic]locator
	// repeated are topics that a delta client subscribes to again.
	repeated []topic
	// removed are topics that were subscribed, with the client's locators.
	removed map[topic]locator
	// had are the resources that a client with locators and a wildcard has for those.
	had      map[topic]*entry
	interest interest
	// askedForAll is set if the request subscribes to the wildcard, perhaps again.
	askedForAll bool
	// known are the versions that a delta client has from an earlier stream, by name.
	known map[string]string
}

func (c subscriptionChange) isNone(before interest) bool {
	return len(c.added) == 0 && len(c.repeated) == 0 && len(c.removed) == 0 && !c.askedForAll && c.interest == before
}

// usage returns the difference that the change makes to the client's usage.
func (c subscriptionChange) usage() usage {
	u := usage{names: len(c.added) - len(c.removed)}
	for _, l := range c.added {
		u.bytes += l.size()
	}
	for _, l := range c.removed {
		u.bytes -= l.size()
	}
	for name, version := range c.known {
		if _, named := c.added[topic{name: keyOf(name)}]; !named {
			u.bytes += len(name) + len(version)
		}
	}
	return u
}

var (
	wildcardKey = keyOf(wildcardName)
	// wildcardTopic is the wildcard of a client that subscribes by names, where it is an
	// interest and not one of the names. With locators it is one of them.
	wildcardTopic = topic{name: wildcardKey}
)

// asksForWildcard reports whether one of the topics is the wildcard of a type that has one.
func asksForWildcard(wanted map[topic]locator) bool {
	for tp := range wanted {
		if tp.name == wildcardKey {
			return true
		}
	}
	return false
}

func isIn(set map[topic]locator, tp topic) bool {
	_, ok := set[tp]
	return ok
}

// sotwChange compares the names of a SotW request with the subscription. The caller holds Store.mu.
func (s *selection) sotwChange(wanted map[topic]locator) subscriptionChange {
	change := subscriptionChange{interest: s.nextSotWInterest(wanted), added: wanted, removed: map[topic]locator{}}
	change.askedForAll = change.interest.wildcard() && !s.interest.wildcard()
	if change.interest == interestWildcard {
		delete(wanted, wildcardTopic)
	}
	for a := range s.asks() {
		if tp := s.topicOf(a); !isIn(wanted, tp) {
			change.removed[tp] = s.locator(a)
		}
	}
	maps.DeleteFunc(wanted, func(tp topic, _ locator) bool { return s.named(tp) })
	return change
}

// nextSotWInterest follows "How the client specifies what resources to return" in Envoy's
// description of the protocol.
func (s *selection) nextSotWInterest(wanted map[topic]locator) interest {
	if !hasWildcard(s.typeURL) {
		return interestNamed
	}
	if asksForWildcard(wanted) {
		return interestWildcard
	}
	if s.dialect == byNames && len(wanted) == 0 && (s.interest == interestUnknown || s.interest == interestLegacyWildcard) {
		return interestLegacyWildcard
	}
	return interestNamed
}

// deltaChange is the change of a delta request. A topic in both sets stays subscribed, and is sent
// again. The caller holds Store.mu and stream.mu.
func (s *selection) deltaChange(asked, dropped map[topic]locator, versions map[string]string) subscriptionChange {
	change := subscriptionChange{interest: s.nextDeltaInterest(asked, dropped), removed: map[topic]locator{}}
	if hasWildcard(s.typeURL) {
		change.askedForAll = asksForWildcard(asked)
		change.askedForAll = change.askedForAll || change.interest == interestLegacyWildcard && s.interest == interestUnknown
		delete(asked, wildcardTopic)
		delete(dropped, wildcardTopic)
	}
	for tp := range dropped {
		if a := s.askOf(tp); a != nil && !isIn(asked, tp) {
			change.removed[tp] = s.locator(a)
		}
	}
	maps.DeleteFunc(asked, func(tp topic, _ locator) bool {
		named := s.named(tp)
		if named {
			change.repeated = append(change.repeated, tp)
		}
		return named
	})
	change.added = asked
	if s.interest == interestUnknown {
		change.known = s.relevantVersions(change, versions)
	}
	return change
}

// nextDeltaInterest is nextSotWInterest for delta, where the legacy wildcard lasts until the client
// unsubscribes from "*".
func (s *selection) nextDeltaInterest(asked, dropped map[topic]locator) interest {
	switch {
	case !hasWildcard(s.typeURL):
		return interestNamed
	case s.dialect == byLocators:
		return s.nextLocatorInterest(asked, dropped)
	case asksForWildcard(asked):
		return interestWildcard
	case asksForWildcard(dropped):
		return interestNamed
	case s.interest == interestUnknown && len(asked) > 0:
		return interestNamed
	case s.interest == interestUnknown && len(dropped) == 0:
		return interestLegacyWildcard
	default:
		return s.interest
	}
}

// nextLocatorInterest is for locators, several of which may be the wildcard.
func (s *selection) nextLocatorInterest(asked, dropped map[topic]locator) interest {
	if asksForWildcard(asked) {
		return interestWildcard
	}
	for a := range s.asksFor(wildcardKey) {
		if !isIn(dropped, s.topicOf(a)) {
			return interestWildcard
		}
	}
	return interestNamed
}

// relevantVersions returns the versions of a reconnecting client's resources that it subscribes to
// in the same request.
func (s *selection) relevantVersions(change subscriptionChange, versions map[string]string) map[string]string {
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
