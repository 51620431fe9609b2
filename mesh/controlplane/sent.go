package controlplane

import (
	"cmp"

	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// What a client was last sent is recorded as far as it decides what to send next. SotW: errors, absence
// that was reported as an error, computed resources, and resources with errors beside them. Delta: everything that the client
// knows. The topic of a glob has the collection's error, or absence if there is none.
//
// A delta client mostly knows the present entry of an ask, if that has an answer and is not computed; that is only marked in
// subscription.names, and items have the rest. The caller of each method holds stream.mu, and Store.mu at least for reading.

// marked is what marks stand for.
func (sub *subscription) marked(a *ask) *entry { return cmp.Or(a.entryOf(sub), absence) }

// lastSent returns what the client was last sent of a topic, nil if it was sent nothing.
func (sub *subscription) lastSent(tp topic) *entry { return sub.lastSentOf(tp, sub.askOf(tp)) }

// lastSentOf is lastSent for a topic with its ask, nil if it is not subscribed by name.
func (sub *subscription) lastSentOf(tp topic, a *ask) *entry {
	if e := sub.items.get(tp).has; e != nil {
		return e
	}
	if a != nil && sub.names.known(a.number) {
		return sub.marked(a)
	}
	return nil
}

// setSent records what the client was sent.
func (sub *subscription) setSent(tp topic, e *entry) { sub.setSentOf(tp, sub.askOf(tp), e) }

// setSentOf is setSent for a topic with its ask, nil if it is not subscribed by name.
func (sub *subscription) setSentOf(tp topic, a *ask, e *entry) {
	recorded := sub.mode == pushDifference || e.resource == nil || sub.typeURL == dynparam.MapTypeURL || sub.mode == pushChanged && e.beside != nil
	if sub.mode == pushDifference && a != nil && !a.choice.isComputed() {
		known := sub.marked(a) == e
		sub.names.setKnown(a.number, known)
		recorded = !known
	}
	if !recorded {
		e = nil
	}
	sub.items.setHas(tp, e)
}

// setSentResource is setSentOf for a client that was not told of the error beside a resource: it is sent that with a later response.
func (sub *subscription) setSentResource(tp topic, a *ask, e *entry) {
	if a == nil || e.beside == nil || sub.mode == pushAll {
		sub.setSentOf(tp, a, e)
		return
	}
	sub.names.setKnown(a.number, false)
	sub.items.setHas(tp, &entry{resource: e.resource})
}

// keepSent records what a SotW client has before an error goes beside it.
func (sub *subscription) keepSent(tp topic, old *entry) {
	if sub.mode == pushChanged && old.asResource() != nil && sub.lastSent(tp) == nil {
		sub.items.setHas(tp, old)
	}
}

// forgetSent records that it is not known what the client has of a topic that is not subscribed by name, or has no answer.
func (sub *subscription) forgetSent(tp topic) { sub.items.setHas(tp, nil) }

// replaceSent keeps what the client was sent, before or after the entry of an ask changes.
func (sub *subscription) replaceSent(a *ask, old *entry) {
	if sub.names.known(a.number) {
		sub.names.setKnown(a.number, false)
		sub.items.setHas(sub.topicOf(a), cmp.Or(old, absence))
	}
}

// allSent calls yield with everything that the client was sent.
func (sub *subscription) allSent(yield func(topic, *entry) bool) {
	for tp, it := range sub.items.of.m {
		if it.has != nil && !yield(tp, it.has) {
			return
		}
	}
	if sub.mode != pushDifference {
		return
	}
	for a := range sub.asks() {
		if sub.names.known(a.number) && !yield(sub.topicOf(a), sub.marked(a)) {
			return
		}
	}
}

// absence records that the client knows that a name does not exist. The store never holds it.
var absence = &entry{}
