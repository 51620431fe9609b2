package controlplane

import "cmp"

// What a client has of a topic that is subscribed by name is what the store has, the entry of the ask or absence, unless items.has
// says otherwise: that it was sent nothing yet, or what the ask had before it changed. Of other topics, the members of collections over
// delta, it has what the item says. The topic of a glob has the collection's error, or absence if there is none. The caller of each method
// holds Store.mu for writing, or for reading and stream.mu.

var (
	// absence records that the client knows that a name does not exist. The store never holds it.
	absence = &entry{}
	// nothing records that the client was sent nothing of a topic that is subscribed by name.
	nothing = &entry{}
)

// lastSent returns what the client was last sent of a topic, nil if it was sent nothing. a is the topic's ask, nil if it is not subscribed
// by name.
func (sub *subscription) lastSent(tp topic, a *ask) *entry {
	switch has := sub.items.has.m[tp]; {
	case has == nothing:
		return nil
	case has == nil && a != nil:
		return cmp.Or(a.entryOf(sub), absence)
	default:
		return has
	}
}

// setSent records what the client was sent of a topic, whose ask is a, nil if it is not subscribed by name.
func (sub *subscription) setSent(tp topic, a *ask, e *entry) {
	if a != nil && e == cmp.Or(a.entryOf(sub), absence) {
		sub.items.has.delete(tp)
	} else {
		sub.items.has.set(tp, e)
	}
}

// setSentResource is setSent for a client that was not told of the error beside a resource: it is sent that with a later response.
func (sub *subscription) setSentResource(tp topic, a *ask, e *entry) {
	if a != nil && e.beside != nil && sub.mode != pushAll {
		e = &entry{resource: e.resource}
	}
	sub.setSent(tp, a, e)
}

// forgetSent records that it is not known what the client has of a topic that is not subscribed by name.
func (sub *subscription) forgetSent(tp topic) { sub.items.has.delete(tp) }

// keepSent records what the client has of an ask, whose entry was old, before or after that changes.
func (sub *subscription) keepSent(a *ask, old *entry) {
	tp := sub.topicOf(a)
	if sub.items.has.m[tp] != nil {
		return
	}
	if old.isComputed() {
		old = sub.computed[a.name].entry
	}
	sub.items.has.set(tp, cmp.Or(old, absence))
}

// allSent calls yield with everything that the client was sent.
func (sub *subscription) allSent(yield func(topic, *entry) bool) {
	for tp, has := range sub.items.has.m {
		if has != nothing && !yield(tp, has) {
			return
		}
	}
	for a := range sub.asks() {
		tp := sub.topicOf(a)
		if sub.items.has.m[tp] == nil && !yield(tp, sub.lastSent(tp, a)) {
			return
		}
	}
}
