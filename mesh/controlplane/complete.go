package controlplane

import (
	"cmp"
	"slices"
	"strings"

	"github.com/dynxds/dynxds/internal/typeurl"
)

// The complete responses of SotW: what a client is subscribed to of a type with a wildcard.

// list lists what is subscribed, if that is due, or there are errors.
func (w *composer) list(all bool) {
	sub := w.sub
	if sub.mode != pushAll || !all && len(w.batch.errors) == 0 {
		return // the rest of many names, which the last response had
	}
	w.batch.answer = true
	w.batch.complete = sub.subscribed()
	var kept []*Resource
	for _, old := range sub.items.kept.m {
		kept = append(kept, old.resource)
	}
	if len(kept) > 0 {
		w.batch.complete = inOrder(slices.Concat(w.batch.complete, kept))
	}
	if sub.typeURL == typeurl.Cluster {
		w.batch.before, sub.last = sub.last, w.batch.complete
		sub.items.sentAgain()
	}
}

// subscribed returns all existing resources of what is subscribed, of a type with a wildcard.
func (sub *subscription) subscribed() []*Resource {
	covered := sub.addressing == byNames && sub.wildcard()
	var found []*Resource
	for _, a := range sub.asksInOrder() {
		if r := a.entryOf(sub).asResource(); r != nil && !(covered && a.name.collection == "") {
			found = append(found, r)
		}
	}
	if sub.addressing == byNames && !covered {
		return inOrder(found)
	}
	for a := range sub.asksFor(wildcardKey) {
		if a.refused != nil || sub.isClosed(a) {
			continue
		}
		all := a.list(sub.addressing)
		if covered && len(found) == 0 {
			return all // which is shared
		}
		found = append(found, all...)
	}
	return inOrder(found)
}

// withholds reports whether a complete SotW response has to wait for a source: for the wildcard, or
// in the type's first response for any name, since clients take what it lacks for deleted. That the
// source is a relay whose management servers are unreachable is no answer for a client that may have
// the resource and does not know the error. The caller holds Store.mu and stream.mu.
func (sub *subscription) withholds() bool {
	if sub.table.source == nil || sub.mode != pushAll {
		return false
	}
	if sub.anyCollection(wildcardKey, sub.isClosed) {
		return true
	}
	if sub.delivery.reply != ReplyNone {
		return false
	}
	for a := range sub.asks() {
		if e := a.entryOf(sub); e == awaited || sub.resumes && e != nil && e.err != nil && e.err.unreachable {
			return true
		}
	}
	return false
}

// inOrder sorts resources by name and removes duplicates.
func inOrder(found []*Resource) []*Resource {
	slices.SortFunc(found, byName)
	return slices.CompactFunc(found, (*Resource).same)
}

// hasName reports whether a list ordered by name has a variant of a resource.
func hasName(resources []*Resource, name string) bool {
	_, ok := slices.BinarySearchFunc(resources, name, func(r *Resource, name string) int { return strings.Compare(r.name, name) })
	return ok
}

// asksInOrder returns the asks for names other than the wildcard, ordered by name. The stream's
// sender calls it, with Store.mu held for reading; see sortNames.
func (sub *subscription) asksInOrder() []*ask {
	if sub.inOrder == nil {
		sub.inOrder = sub.sorted(slices.AppendSeq(make([]*ask, 0, len(sub.names)), sub.asks()))
	}
	return sub.inOrder
}

// sorted puts asks in order. It needs no lock: it looks at what does not change of them.
func (sub *subscription) sorted(asks []*ask) []*ask {
	asks = slices.DeleteFunc(asks, func(a *ask) bool { return sub.isWildcard(sub.topicOf(a)) })
	slices.SortFunc(asks, func(a, b *ask) int { return cmp.Compare(a.spelling, b.spelling) })
	return asks
}

// sortNames prepares asksInOrder of a client with many names, without Store.mu. The sender does not look at the subscription until the
// change is complete.
func (r *resubscription) sortNames() {
	sub, all := r.sub, make([]*ask, 0, len(r.sub.names))
	if sub.mode != pushAll || cap(all) <= r.pace.due || !sub.eachAsk(func(a *ask) { all = append(all, a) }) {
		return
	}
	all = sub.sorted(all)
	sub.stream.store.mu.RLock()
	defer sub.stream.store.mu.RUnlock()
	sub.inOrder = all
}
