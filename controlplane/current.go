package controlplane

// current returns what a subscription has under a topic, nil if there is nothing,
// and unanswered if it is not known yet. What was deleted it may have for a while. The caller holds Store.mu, of which t is
// a table, and stream.mu.
func (sub *subscription) current(t *table, tp topic) *entry {
	var e *entry
	if parameters, ok := tp.variant(); ok {
		e = t.slots[tp.name].find(parameters)
	} else if sub.named(tp) {
		e = sub.answerTo(tp.name, t.asks[tp.name][sub.askKey(tp)].choice)
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

// postpone makes a topic due again that could not be told. The caller holds
// stream.mu.
func (sub *subscription) postpone(tp topic, again bool) {
	sub.pending.add(tp, again)
	sub.stream.markDue(sub)
}
