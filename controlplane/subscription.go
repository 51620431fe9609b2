package controlplane

import (
	"cmp"
	"maps"
	"slices"

	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

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
	// tellAll: by everything that is subscribed (SotW, types with wildcard). Which
	// names changed matters for errors only, which are told once.
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
	dialect dialect

	// Written by the stream's reader under Store.mu, so that the reader may
	// read them without.

	// names maps what is subscribed by name to what the client said.
	names map[topic]locator
	// listed is what the last SotW request listed.
	listed []string
	// topics has the keys of names by name, for byLocators only.
	topics   map[nameKey]map[topic]struct{}
	interest interest

	// implicit are the constraints of a client that sends none. Guarded by
	// Store.mu.
	implicit dynparam.Constraints
	// asks are those for names, ordered by name; nil if they are to be looked up
	// anew. Set by the stream's sender with Store.mu held for reading, and
	// cleared with it held for writing.
	asks []*ask

	// Guarded by stream.mu.

	pending pending
	// queued says that the subscription is among stream.dueSubs.
	queued bool
	// told is what the client was last told of a topic, as far as that decides
	// what it has to be told. SotW: only errors, absence where the client was
	// told of that by an error, and what was computed for it. Delta: everything;
	// what is not here, the client knows nothing of. Topics of globs are here,
	// too: with the collection's error, or with absence if it is in none.
	told map[topic]*entry
	// kept are the resources that the store has no more and the client is still to
	// have; see Options.RemovalDelay.
	kept map[topic]*entry
	// answers are what computed resources are for this client, and epoch counts
	// how often it was said that they may be others by now.
	answers  map[nameKey]answer
	epoch    uint64
	delivery delivery
}

// pending is what changed since the client was last told. It is bounded by what
// is subscribed and by what the client was told.
type pending struct {
	// all makes everything that is subscribed due, beside topics.
	all bool
	// allAgain is that even of what the client was told already.
	allAgain bool
	// topics says of each topic whether it is due even if the client was told
	// already, as it asked.
	topics map[topic]bool
}

func (p *pending) empty() bool { return !p.all && len(p.topics) == 0 }

func (p *pending) add(tp topic, again bool) {
	if p.topics == nil {
		p.topics = map[topic]bool{}
	}
	p.topics[tp] = p.topics[tp] || again
}

// subscriptionChange is the difference that one request makes.
type subscriptionChange struct {
	// added are topics that were not subscribed, with what the client said.
	added map[topic]locator
	// repeated are topics that were, and that a delta client asks for again.
	repeated []topic
	// removed are topics that were subscribed, with what the client said.
	removed  map[topic]locator
	interest interest
	// askedForAll: the request subscribes to the wildcard, perhaps again.
	askedForAll bool
	// known are the versions that a delta client says it has from an earlier
	// stream, by name.
	known map[string]string
}

func (c subscriptionChange) isNone(before interest) bool {
	return len(c.added) == 0 && len(c.repeated) == 0 && len(c.removed) == 0 && !c.askedForAll && c.interest == before
}

// usage returns how much more the client occupies after the change.
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

// diff compares all that a SotW request asks for with what is subscribed.
func (sub *subscription) diff(wanted map[topic]locator) subscriptionChange {
	change := subscriptionChange{interest: sub.nextInterest(wanted), added: wanted, removed: map[topic]locator{}}
	change.askedForAll = change.interest.wildcard() && !sub.interest.wildcard()
	if change.interest == interestWildcard {
		delete(wanted, wildcardTopic)
	}
	for tp, l := range sub.names {
		if _, ok := wanted[tp]; !ok {
			change.removed[tp] = l
		}
	}
	// What is left is new.
	maps.DeleteFunc(wanted, func(tp topic, _ locator) bool { return sub.named(tp) })
	return change
}

var (
	wildcardKey = keyOf(wildcardName)
	// wildcardTopic is the wildcard of a client that subscribes by names. It is
	// an interest, not one of the names; with constraints it is one of them.
	wildcardTopic = topic{name: wildcardKey}
)

// isWildcard says whether a topic that is subscribed by name is the wildcard.
func (sub *subscription) isWildcard(tp topic) bool {
	return tp.name == wildcardKey && hasWildcard(sub.typeURL)
}

// nextInterest follows "How the client specifies what resources to return" of
// Envoy's description of the protocol, for SotW.
func (sub *subscription) nextInterest(wanted map[topic]locator) interest {
	if !hasWildcard(sub.typeURL) {
		return interestNamed
	}
	if asksForWildcard(wanted) {
		return interestWildcard
	}
	if sub.dialect == byNames && len(wanted) == 0 && (sub.interest == interestUnknown || sub.interest == interestLegacyWildcard) {
		return interestLegacyWildcard
	}
	return interestNamed
}

// asksForWildcard says whether one of the topics is the wildcard, of a type that
// has one.
func asksForWildcard(wanted map[topic]locator) bool {
	for tp := range wanted {
		if tp.name == wildcardKey {
			return true
		}
	}
	return false
}

// named says whether the topic itself is subscribed.
func (sub *subscription) named(tp topic) bool {
	_, ok := sub.names[tp]
	return ok
}

// topicOf returns the topic of those who asked for a name.
func (sub *subscription) topicOf(key nameKey, a *ask) topic {
	if sub.dialect == byNames {
		return topic{name: key}
	}
	return topic{key, markConstraints + a.key}
}

// askKey returns the key of the ask that a subscribed topic is part of. The
// caller holds Store.mu.
func (sub *subscription) askKey(tp topic) string {
	if sub.dialect == byNames {
		return sub.implicit.Key()
	}
	return tp.which[len(markConstraints):]
}

// indexTopic keeps topics in step with names.
func (sub *subscription) indexTopic(tp topic, on bool) {
	if sub.dialect == byNames {
		return
	}
	if sub.topics == nil {
		sub.topics = map[nameKey]map[topic]struct{}{}
	}
	addTo(sub.topics, tp.name, tp, on)
}

// meant returns a locator with the constraints that count. The caller holds
// Store.mu.
func (sub *subscription) meant(l locator) locator {
	if sub.dialect == byNames {
		l.constraints = sub.implicit
	}
	return l
}

// inGlob says whether the topic is in a glob collection that is subscribed. e is
// what is, or was, under it.
func (sub *subscription) inGlob(tp topic, e *entry) bool {
	if sub.telling != tellDifference || tp.name.collection == "" || tp.name.isGlob() {
		return false
	}
	if sub.dialect == byNames {
		return sub.named(topic{name: tp.name.glob()})
	}
	return sub.covers(tp.name.glob(), tp, e)
}

// inWildcard is inGlob for the wildcard.
func (sub *subscription) inWildcard(tp topic, e *entry) bool {
	if sub.dialect == byNames {
		return sub.interest.wildcard()
	}
	return hasWildcard(sub.typeURL) && sub.covers(wildcardKey, tp, e)
}

// covers says whether a client that subscribes by locators asked for a collection
// with constraints that the variant matches.
func (sub *subscription) covers(collection nameKey, tp topic, e *entry) bool {
	if _, ok := tp.variant(); !ok || e == nil {
		return false
	}
	for asked := range sub.topics[collection] {
		l := sub.names[asked]
		if l.refused == nil && l.constraints.Match(e.parameters()) {
			return true
		}
	}
	return false
}

// wants says whether a topic is subscribed in any way.
func (sub *subscription) wants(tp topic, e *entry) bool {
	return sub.named(tp) || sub.inWildcard(tp, e) || sub.inGlob(tp, e)
}

// spelling returns the name as the client spells it, or as the entry does if
// the client did not ask for it by name.
func (sub *subscription) spelling(tp topic, e *entry) string {
	if l, ok := sub.names[tp]; ok {
		return l.name
	}
	return e.name()
}

// resourceName names a topic to the client.
func (sub *subscription) resourceName(tp topic, e *entry) *discoverypb.ResourceName {
	if l, ok := sub.names[tp]; ok {
		return l.resourceName(sub.dialect)
	}
	if sub.dialect == byNames {
		return &discoverypb.ResourceName{Name: e.name()}
	}
	return variantName(e.name(), e.parameters())
}

// changed notes that the topic is not what the client was told last. The store
// calls it, for subscribed topics only. deleted is what the store had, if the topic does
// not exist because that was deleted.
func (sub *subscription) changed(tp topic, exists bool, deleted *entry) {
	s := sub.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	if exists {
		sub.restore(tp)
	} else if sub.withdraw(tp, deleted) {
		return
	}
	switch {
	case sub.telling == tellAll:
		sub.pending.all = true
		if sub.named(tp) {
			sub.pending.add(tp, false)
		}
	case exists || sub.named(tp) || sub.told[tp] != nil:
		sub.pending.add(tp, false)
	default:
		// It came and went while the client was not looking. Kept, such topics
		// would grow without bound.
		delete(sub.pending.topics, tp)
	}
	s.markDue(sub)
}

// remember notes what the client was told of a topic. The caller holds
// stream.mu.
func (sub *subscription) remember(tp topic, e *entry) {
	if sub.told == nil {
		sub.told = map[topic]*entry{}
	}
	sub.told[tp] = e
}

// due notes what a change of the subscription itself makes due. The caller holds
// Store.mu, of which t is a table.
func (sub *subscription) due(t *table, change subscriptionChange, before interest) {
	s := sub.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	for tp := range change.removed {
		delete(sub.answers, tp.name)
		delete(sub.told, tp)
		delete(sub.pending.topics, tp)
		sub.restore(tp)
	}
	maps.DeleteFunc(sub.kept, func(tp topic, was *entry) bool { return !sub.wants(tp, was) })
	if sub.telling == tellDifference {
		sub.dueDifference(t, change, before)
	} else {
		sub.dueState(change)
	}
	s.markDue(sub)
}

// dueState is due for SotW: every name that is new is told, even if the client
// may know it from before.
func (sub *subscription) dueState(change subscriptionChange) {
	if sub.telling == tellAll {
		sub.pending.all = sub.pending.all || change.askedForAll || len(change.added) > 0
	}
	for tp := range change.added {
		sub.asksAgain(tp)
		sub.pending.add(tp, true)
	}
}

// takePending returns what is due and clears it. The caller holds stream.mu.
func (sub *subscription) takePending() pending {
	p := sub.pending
	sub.pending, sub.queued = pending{}, false
	return p
}

// asksInOrder returns what is asked for by name, but for the wildcard, ordered by
// name. The stream's sender calls it, with Store.mu held for reading.
func (sub *subscription) asksInOrder(t *table) []*ask {
	if sub.asks != nil {
		return sub.asks
	}
	topics := make([]topic, 0, len(sub.names))
	for tp := range sub.names {
		if !sub.isWildcard(tp) {
			topics = append(topics, tp)
		}
	}
	slices.SortFunc(topics, func(a, b topic) int { return cmp.Compare(sub.names[a].name, sub.names[b].name) })
	sub.asks = make([]*ask, len(topics))
	for i, tp := range topics {
		sub.asks[i] = t.asks[tp.name][sub.askKey(tp)]
	}
	return sub.asks
}

// sortedNames returns the subscribed names in order. The caller holds Store.mu.
func (sub *subscription) sortedNames() []string {
	names := make([]string, 0, len(sub.names))
	for tp, l := range sub.names {
		if !sub.isWildcard(tp) {
			names = append(names, l.name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
