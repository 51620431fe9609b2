package controlplane

import "cmp"

// What a client has of a topic that is subscribed by name is what the store has, the entry of the ask or absence, unless the topic's item
// says otherwise: that it was sent nothing yet, or what the ask had before it changed. Of other topics, the members of collections over
// delta, it has what the item says. The topic of a glob has the collection's error, or absence if there is none. The caller of each method
// holds Store.mu for writing, or for reading and stream.mu.

var (
	// absence records that the client knows that a name does not exist. The store never holds it.
	absence = &entry{}
	// nothing records that the client was sent nothing of a topic that is subscribed by name.
	nothing = &entry{}
)

// lastSent returns what the client was last sent of a topic, nil if it was sent nothing.
func (sub *subscription) lastSent(tp topic) *entry { return sub.lastSentOf(tp, sub.askOf(tp)) }

// lastSentOf is lastSent for a topic with its ask, nil if it is not subscribed by name.
func (sub *subscription) lastSentOf(tp topic, a *ask) *entry {
	switch has := sub.items.get(tp).has; {
	case has == nothing:
		return nil
	case has == nil && a != nil:
		return cmp.Or(a.entryOf(sub), absence)
	default:
		return has
	}
}

// setSent records what the client was sent.
func (sub *subscription) setSent(tp topic, e *entry) { sub.setSentOf(tp, sub.askOf(tp), e) }

// setSentOf is setSent for a topic with its ask, nil if it is not subscribed by name.
func (sub *subscription) setSentOf(tp topic, a *ask, e *entry) {
	if a != nil && e == cmp.Or(a.entryOf(sub), absence) {
		e = nil
	}
	sub.items.setHas(tp, e)
}

// setSentResource is setSentOf for a client that was not told of the error beside a resource: it is sent that with a later response.
func (sub *subscription) setSentResource(tp topic, a *ask, e *entry) {
	if a != nil && e.beside != nil && sub.mode != pushAll {
		e = &entry{resource: e.resource}
	}
	sub.setSentOf(tp, a, e)
}

// forgetSent records that it is not known what the client has of a topic that is not subscribed by name.
func (sub *subscription) forgetSent(tp topic) { sub.items.setHas(tp, nil) }

// keepSent records what the client has of an ask, whose entry was old, before or after that changes.
func (sub *subscription) keepSent(a *ask, old *entry) {
	tp := sub.topicOf(a)
	if sub.items.get(tp).has != nil {
		return
	}
	if old.isComputed() {
		old = sub.computed[a.name].entry
	}
	sub.items.setHas(tp, cmp.Or(old, absence))
}

// allSent calls yield with everything that the client was sent.
func (sub *subscription) allSent(yield func(topic, *entry) bool) {
	for tp, it := range sub.items.of.m {
		if it.has != nil && it.has != nothing && !yield(tp, it.has) {
			return
		}
	}
	for a := range sub.asks() {
		tp := sub.topicOf(a)
		if sub.items.get(tp).has == nil && !yield(tp, sub.lastSentOf(tp, a)) {
			return
		}
	}
}
