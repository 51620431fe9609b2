package controlplane

import (
	"maps"
	"slices"
)

// subscriptionChange is the difference that one request makes.
type subscriptionChange struct {
	// added are new topics, with the client's locators.
	added map[topic]locator
	// repeated are what a delta client subscribes to again.
	repeated []*ask
	// removed are what the topics that were subscribed have joined.
	removed  []*ask
	interest interest
	// known are the versions that a delta client has from an earlier stream, by name.
	known map[string]string
}

var (
	wildcardKey = keyOf(wildcardName)
	// wildcardTopic is the wildcard of a client that subscribes by names. It is one of the names, even if the client has sent none.
	wildcardTopic = topic{name: wildcardKey}
)

func isIn(set map[topic]locator, tp topic) bool {
	_, ok := set[tp]
	return ok
}

// A request is compared with what is subscribed by the stream's reader, which alone changes that. It holds no lock, but Store.mu in turns.

// sotwChange compares the names of a SotW request with the subscription.
func (sub *subscription) sotwChange(wanted map[topic]locator, becomes interest) subscriptionChange {
	change := subscriptionChange{interest: becomes, added: wanted}
	sub.eachAsk(func(a *ask) {
		if tp := sub.topicOf(a); isIn(wanted, tp) {
			delete(wanted, tp)
		} else {
			change.removed = append(change.removed, a)
		}
	})
	return change
}

// eachAsk calls f with each ask that is subscribed by name, with Store.mu held for reading, in turns. It returns
// false if the asks changed meanwhile.
func (sub *subscription) eachAsk(f func(*ask)) (whole bool) {
	turn := sub.stream.store.reading(sub.stream.yielding())
	turn.lock()
	defer turn.unlock()
	names, version := sub.names, sub.namesVersion
	turn.resume = func() bool { return sub.namesVersion == version }
	for number := range inTurns(turn, slices.Values(names)) {
		f(sub.table.index.asks.get(number))
	}
	return !turn.ended
}

// deltaChange is the change of a delta request. A topic in both sets stays subscribed, and is sent
// again.
func (sub *subscription) deltaChange(asked, dropped map[topic]locator, versions map[string]string) subscriptionChange {
	change := subscriptionChange{interest: interestNamed, added: asked}
	turn := sub.stream.store.reading(sub.stream.yielding())
	turn.lock()
	for tp := range inTurns(turn, maps.Keys(dropped)) {
		if a := sub.askOf(tp); a != nil && !isIn(asked, tp) {
			change.removed = append(change.removed, a)
		}
	}
	for tp := range inTurns(turn, maps.Keys(asked)) {
		if a := sub.askOf(tp); a != nil {
			delete(asked, tp)
			change.repeated = append(change.repeated, a)
		}
	}
	turn.unlock()
	if sub.interest == interestUnknown {
		change.known = versions
	}
	return change
}
