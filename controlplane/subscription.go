package controlplane

import (
	"cmp"
	"slices"
)

// subscription is what one stream asks for of one type, the changes that it still has to be
// sent, and what it was sent.
//
// A request changes the selection, which makes topics due; so does an update of the store.
// The stream's sender makes responses of what is due and of what the client was told.
type subscription struct {
	selection
	stream *stream

	// asks are those for names, ordered by name; nil if they have to be looked up. Set by
	// the stream's sender with Store.mu held for reading, and cleared with it held for
	// writing.
	asks []*ask

	// Guarded by stream.mu.

	pending pending
	// queued says that the subscription is among stream.dueSubs.
	queued   bool
	sent     sentEntries
	kept     keptEntries
	answers  answers
	delivery delivery
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

// current returns what a subscription has under a topic, nil if there is nothing,
// and unanswered if it is not known yet. A resource that was deleted may be kept for a
// while. The caller holds Store.mu, of which t is a table, and stream.mu.
func (sub *subscription) current(t *table, tp topic) *entry {
	var e *entry
	if parameters, ok := tp.variant(); ok {
		e = t.slots[tp.name].variant(parameters)
	} else if sub.named(tp) {
		e = sub.answers.answerTo(tp.name, t.asks[tp.name][sub.askKey(tp)].choice)
	} else {
		e = t.choose(t.slots[tp.name], sub.implicit)
	}
	switch {
	case e == nil:
		return sub.kept[tp]
	case e.computed != nil:
		return nil // made only for those who ask by name
	}
	return e
}

// rivals calls yield with the subscriptions by name that a resource, which is
// about to be sent, matches though they have something else, and with what that
// is. It has to be sent beside the resource: the client hands a resource to every
// subscription whose constraints it matches, and has to see that there is one to
// be preferred, or an error.
func (sub *subscription) rivals(t *table, r *Resource, yield func(topic, *entry)) {
	for tp := range sub.topics[r.key] {
		l := sub.names[tp]
		if l.refused != nil || !l.constraints.Match(r.parameters) {
			continue
		}
		if e := sub.current(t, tp); e != nil && e != unanswered && e.resource != r {
			yield(tp, e)
		}
	}
}

// changed notes that the topic is not what the client was told last. The store
// calls it, for subscribed topics only. deleted is what the store had, if the topic does
// not exist because that was deleted.
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
		// It was created and deleted before the client was told. Kept, such topics would
		// grow without bound.
		delete(sub.pending.topics, tp)
	}
	s.markDue(sub)
}
