package controlplane

import "cmp"

// sentEntries are the last entries that the client was sent, by topic, as far as they decide
// what to send next. SotW: errors, absence that was reported as an error, and computed
// resources. Delta: what the client knows, but for the asks whose present entry it knows, as it
// mostly does; these are marked in selection.names. The topic of a glob has the collection's error,
// or absence if there is none.
type sentEntries map[topic]*entry

// lastSent returns what the client was last sent of a topic, and whether it was sent anything. The
// caller holds Store.mu and stream.mu.
func (sub *subscription) lastSent(tp topic) (*entry, bool) {
	if e, ok := sub.sent[tp]; ok || sub.mode != pushDifference {
		return e, ok
	}
	if a := sub.askOf(tp); a != nil && sub.names.known(a.number) {
		return cmp.Or(a.entryOf(sub), absence), true
	}
	return nil, false
}

// knows reports whether the client was sent anything of a topic.
func (sub *subscription) knows(tp topic) bool {
	_, ok := sub.lastSent(tp)
	return ok
}

// setSent records what the client was sent. The caller holds Store.mu and stream.mu.
func (sub *subscription) setSent(tp topic, e *entry) {
	if sub.mode == pushDifference {
		if a := sub.askOf(tp); a != nil {
			present := cmp.Or(a.entryOf(sub), absence) == e
			sub.names.setKnown(a.number, present)
			if present {
				delete(sub.sent, tp)
				return
			}
		}
	}
	if sub.sent == nil {
		sub.sent = sentEntries{}
	}
	sub.sent[tp] = e
}

// forgetSent records that nothing is known of what the client has. The caller holds Store.mu and
// stream.mu.
func (sub *subscription) forgetSent(tp topic) {
	delete(sub.sent, tp)
	if sub.mode != pushDifference {
		return
	}
	if a := sub.askOf(tp); a != nil {
		sub.names.setKnown(a.number, false)
	}
}

// replaced keeps what a client was sent before the entry of an ask changed. The caller holds Store.mu
// and stream.mu.
func (sub *subscription) replaced(a *ask, old *entry) {
	if sub.mode != pushDifference || !sub.names.known(a.number) {
		return
	}
	sub.names.setKnown(a.number, false)
	if sub.sent == nil {
		sub.sent = sentEntries{}
	}
	sub.sent[sub.topicOf(a)] = cmp.Or(old, absence)
}

// keepKnown prepares for a change of the asks of all names, and shareKnown ends it. The caller holds
// Store.mu.
func (sub *subscription) keepKnown() {
	sub.stream.mu.Lock()
	defer sub.stream.mu.Unlock()
	for a := range sub.asks() {
		sub.replaced(a, a.entryOf(sub))
	}
}

func (sub *subscription) shareKnown() {
	sub.stream.mu.Lock()
	defer sub.stream.mu.Unlock()
	for tp, e := range sub.sent {
		sub.setSent(tp, e)
	}
}

// allSent calls yield with everything that the client was sent. The caller holds Store.mu and
// stream.mu.
func (sub *subscription) allSent(yield func(topic, *entry) bool) {
	for tp, e := range sub.sent {
		if !yield(tp, e) {
			return
		}
	}
	if sub.mode != pushDifference {
		return
	}
	for a := range sub.asks() {
		if sub.names.known(a.number) && !yield(sub.topicOf(a), cmp.Or(a.entryOf(sub), absence)) {
			return
		}
	}
}

// absence records that the client knows that a name does not exist. The store never holds it.
var absence = &entry{}

// claim records a resource that a client has, or may have, from an earlier stream.
func claim(name, version string) *entry {
	return &entry{resource: &Resource{name: name, version: version}}
}

// claimed reports whether the entry is a claim.
func (e *entry) claimed() bool { return e.resource != nil && e.resource.packed == nil }
