package ads

import (
	"slices"

	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
)

// A delta request that would be larger than servers accept is made in parts. The first request of a
// stream is the only one that can claim versions, so resources whose versions do not fit into it are sent by the server again.

// rest has the changes that are still to be requested, in order. Changes of the subscriptions wait until it is empty.
type rest[S comparable] struct{ subscribe, unsubscribe []S }

func (r *rest[S]) isEmpty() bool { return len(r.subscribe) == 0 && len(r.unsubscribe) == 0 }

// nextPart has a request carry as much of the rest as fits. It returns the subscriptions that the server
// does not know of.
func (q *Requests[S]) nextPart(r *wire.Request) (fresh []S) {
	size := 0
	fits := func(s S, more int) bool {
		more += s.Locator().Size(q.Dialect)
		if size > 0 && size+more > q.Limit {
			return false
		}
		size += more
		return true
	}
	var none S
	n := 0
	for n < len(q.rest.unsubscribe) && fits(q.rest.unsubscribe[n], 0) {
		r.Unsubscribe.Add(q.rest.unsubscribe[n].Locator(), q.Dialect)
		n++
	}
	q.noteAllUnsubscribed(q.rest.unsubscribe[:n])
	q.rest.unsubscribe = q.rest.unsubscribe[n:]
	// A server that goes by names does not know that there is more than one subscription
	// to a name, and need not know that one of them has ended.
	r.Unsubscribe.Names = slices.DeleteFunc(r.Unsubscribe.Names, func(name string) bool { return q.subs.First(name) != none })
	for len(q.rest.unsubscribe) == 0 && len(q.rest.subscribe) > 0 {
		s := q.rest.subscribe[0]
		p := s.progress()
		if p.State != Ended && s.Wanted() {
			if !fits(s, q.claims(s)) {
				break
			}
			r.Subscribe.Add(s.Locator(), q.Dialect)
			if p.request == 0 {
				p.request = q.number
			}
			if p.State.isNew() || p.State.isRepeat() {
				fresh = append(fresh, s)
			}
		}
		q.rest.subscribe[0] = none
		q.rest.subscribe = q.rest.subscribe[1:]
	}
	if q.rest.isEmpty() {
		q.rest = rest[S]{}
	}
	return fresh
}

// claims returns the size of the versions that the first request claims for a subscription. If that is too much for one
// request, it claims nothing. A collection that comes in a later request is not claimed either: no server would remove a
// member whose version it was not told.
func (q *Requests[S]) claims(s S) int {
	if q.announced() {
		if s.IsCollection() && !s.progress().Listed() {
			q.subs.ForgetAnswers(s)
		}
		return 0
	}
	size := q.subs.VersionsSize(s)
	if size > q.Limit {
		q.subs.ForgetAnswers(s)
		return 0
	}
	return size
}
