package controlplane

import (
	"cmp"
	"slices"
)

// subscription is the state of one type on one stream: what is subscribed, what is due, and what
// was sent.
//
// Requests change the selection, which makes topics due; so do updates of the store. The stream's
// sender makes responses from what is due and what the client knows.
type subscription struct {
	selection
	stream *stream

	// asks caches asksInOrder. The stream's sender sets it with Store.mu held for reading; it
	// is cleared with Store.mu held for writing.
	asks []*ask

	// Guarded by stream.mu.

	pending pending
	// deferred are claims that are accepted once the source has answered the collections.
	deferred map[string]string
	// queued is set while the subscription is in stream.dueSubs.
	queued   bool
	sent     sentEntries
	kept     keptEntries
	answers  answers
	delivery delivery
}

// asksInOrder returns the asks for names other than the wildcard, ordered by name. The stream's
// sender calls it, with Store.mu held for reading.
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

// current returns the entry of a topic for this client, which may be a kept one: nil if there is
// none, unanswered if it is not computed yet, awaited if the source has not answered. t is the type's table; the caller holds Store.mu and
// stream.mu.
func (sub *subscription) current(t *table, tp topic) *entry {
	var e *entry
	if parameters, ok := tp.variant(); ok {
		e = t.slots[tp.name].variant(parameters)
	} else if sub.named(tp) {
		e = sub.answers.answerTo(tp.name, t.asks[tp.name][sub.askKey(tp)].entryOf(sub))
	} else {
		e = t.choose(t.slots[tp.name], sub.implicit)
	}
	switch {
	case e == nil:
		return sub.kept[tp]
	case e.computed != nil:
		return nil // only subscriptions by name get it
	}
	return e
}

// rivals calls yield with the subscriptions by name that a resource, which is about to be sent,
// matches although they have another entry, and with that entry. It must be sent beside the
// resource: the client gives a resource to every subscription that it matches, unless the response
// has one to prefer, or an error.
func (sub *subscription) rivals(t *table, r *Resource, yield func(topic, *entry)) {
	for tp := range sub.topics[r.key] {
		l := sub.names[tp]
		if l.refused != nil || !l.constraints.Match(r.parameters) {
			continue
		}
		if e := sub.current(t, tp); e != nil && e != unanswered && e != awaited && e.resource != r {
			yield(tp, e)
		}
	}
}

// changed records that a subscribed topic differs from what the client knows. The store calls it.
// deleted is the old entry if the topic does not exist because that was deleted.
func (sub *subscription) changed(tp topic, exists bool, deleted *entry) {
	s := sub.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	if exists {
		sub.kept.restore(tp)
	} else if sub.withdraw(tp, deleted) {
		return
	}
	switch {
	case sub.mode == pushAll:
		sub.pending.all = true
		if sub.named(tp) {
			sub.pending.add(tp, false)
		}
	case exists || sub.named(tp) || sub.sent[tp] != nil:
		sub.pending.add(tp, false)
	default:
		// It was created and deleted before anything was sent. Keeping such topics would
		// not be bounded.
		delete(sub.pending.topics, tp)
	}
	s.markDue(sub)
}
