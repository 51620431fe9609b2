package controlplane

import (
	"sync/atomic"

	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// subscription is the state of one type on one stream: what is subscribed, what is due, and what
// was sent.
//
// Requests change the selection, which makes topics due; so do updates of the store. The stream's
// sender makes responses from what is due and what the client knows.
type subscription struct {
	stream *stream

	// What is selected: guarded by Store.mu.

	typeURL    string
	mode       pushMode
	addressing addressing

	// wraps is stream.wraps, which looks at all features that the client has. It does not change.
	wraps bool
	// table is that of the type.
	table *table
	// names are the asks that the client's names, or locators, have joined.
	names numbers
	// namesVersion counts the changes of names.
	namesVersion uint64
	// inOrder caches asksInOrder, or is nil. It is set with Store.mu held for reading, by the stream's sender or while that does not look,
	// and is cleared with Store.mu held for writing.
	inOrder []*ask
	// byName caches grouped, or is nil. It is set with Store.mu held for reading, and cleared as inOrder is.
	byName atomic.Pointer[map[nameKey][]*ask]
	// listed is the hash of the names of the last SotW request. Only the reader uses it.
	listed   uint64
	interest interest

	// implicit are the constraints of a client that sends none, or those that its node adds to its locators.
	implicit dynparam.Constraints
	// number is that in the index of the table, 0 once the stream has ended; wildcards counts the asks for "*".
	number    uint32
	wildcards int

	// What the client has, and what is due: guarded by stream.mu and Store.mu held for reading, or by Store.mu held for writing.

	items items
	// computed are the results of computations by name.
	computed map[nameKey]*computed
	// settling counts the changes of what is subscribed that are under way; nothing is sent meanwhile.
	settling atomic.Int32
	// claims is what the claims that are kept, and not compared yet, count for.
	claims int64
	// queued is set while the subscription is in stream.dueSubs.
	queued bool
	// last are the resources of the last complete response of Clusters, ordered by name.
	last []*Resource

	// Guarded by stream.mu.

	// resumes is set for a SotW client that has a version from an earlier stream, and does not understand an
	// error after which the resource is to stay in use.
	resumes  bool
	delivery delivery
}

// current returns the entry of a topic for this client, which may be a kept one: nil if there is
// none, awaited if the source has not answered. a is the topic's ask, nil if it is not subscribed by name. The caller holds Store.mu and
// stream.mu.
func (sub *subscription) current(tp topic, a *ask) *entry {
	t := sub.table
	var e *entry
	if parameters, ok := tp.variant(); ok {
		e = t.slots[tp.name].variant(parameters)
	} else if a != nil {
		e = a.entryOf(sub)
	} else {
		e = t.choose(t.slots[tp.name], sub.implicit)
	}
	switch {
	case e == nil:
		return sub.items.kept.m[tp]
	case e.computed != nil:
		return nil // only subscriptions by name get it
	}
	return e
}

// entryChanged is changed for the entry of an ask that the subscription has joined.
func (sub *subscription) entryChanged(a *ask, old *entry, exists bool) {
	sub.keepSent(a, old)
	sub.changed(sub.topicOf(a), exists, old)
}

// changed records that a subscribed topic differs from what the client knows. The store calls it, with mu held for writing.
// deleted is the old entry if the topic does not exist because that was deleted.
func (sub *subscription) changed(tp topic, exists bool, deleted *entry) {
	s := sub.stream
	s.last.changes.Add(1)
	if exists {
		sub.restore(tp)
	} else if sub.retain(tp, deleted) {
		return
	}
	switch {
	case exists || sub.mode == pushAll || sub.named(tp) || sub.lastSent(tp, sub.askOf(tp)) != nil:
		sub.dueChanged(tp)
	default:
		// It was created and deleted before anything was sent. Keeping such topics would
		// not be bounded.
		sub.items.drop(tp)
	}
	sub.items.updated(s.store.updating)
	s.markDue(sub)
}
