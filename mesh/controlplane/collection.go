package controlplane

// A collection is a glob or a wildcard, which is that of all old-style names. It is closed to a subscription while its source has not
// answered that the members are there, or has answered an error. Until then the members are not the client's: it would take an incomplete
// collection for a complete one.

// isClosed reports whether a collection is closed. Without a source none is. The caller holds Store.mu.
func (sub *subscription) isClosed(a *ask) bool {
	return a.table.source != nil && a.refused == nil && a.entryOf(sub) != nil
}

// anyCollection reports whether is is true of a subscription to the collection of a name, but for those that are refused. The caller holds
// Store.mu.
func (sub *subscription) anyCollection(of nameKey, is func(*ask) bool) bool {
	wildcard := of.collection == ""
	switch {
	case of.isGlob(), !wildcard && sub.mode != pushDifference, wildcard && !sub.wildcard():
		return false
	}
	for a := range sub.asksFor(of.glob()) {
		if a.refused == nil && is(a) {
			return true
		}
	}
	return false
}

// inCollection reports whether a topic is in a subscribed collection or, if open is set, in one that is open. e is the topic's present or
// last entry.
func (sub *subscription) inCollection(tp topic, e *entry, open bool) bool {
	if _, variant := tp.variant(); sub.addressing == byLocators && (!variant || e == nil) {
		return false
	}
	return sub.anyCollection(tp.name, func(a *ask) bool {
		return !(open && sub.isClosed(a)) && (sub.addressing == byNames || a.matches(e))
	})
}

// matches reports whether a collection may cover an entry: of a claim the variant is not known.
func (a *ask) matches(e *entry) bool { return e.claimed() || a.constraints.Match(e.parameters()) }

// wants reports whether a topic is subscribed, by name or through a collection, closed or not.
func (sub *subscription) wants(tp topic, e *entry) bool {
	return sub.named(tp) || sub.inCollection(tp, e, false)
}

// wantsName is wants for the name of a resource, with any parameters.
func (sub *subscription) wantsName(r *Resource) bool {
	return sub.count(r.key) > 0 || sub.anyCollection(r.key, func(*ask) bool { return true })
}

// awaitsCollection reports whether the source has not answered a collection of a name.
func (sub *subscription) awaitsCollection(of nameKey) bool {
	return sub.anyCollection(of, func(a *ask) bool { return a.entryOf(sub) == awaited })
}

// refuseWildcard ends the stream if the source has answered a wildcard with an error. The caller holds Store.mu, and not stream.mu.
func (sub *subscription) refuseWildcard(a *ask) {
	if !sub.isWildcard(sub.topicOf(a)) || !sub.isClosed(a) {
		return
	}
	if st := a.entryOf(sub).asError(); st != nil {
		sub.stream.fail(st.Err())
	}
}
