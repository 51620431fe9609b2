package xdsclient

import (
	"slices"

	"github.com/dynxds/dynxds/xdsclient/internal/ads"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
)

// A delta request that would be larger than servers accept is made in parts. The first request of a
// stream is the only one that can claim versions, so resources whose versions do not fit into it are sent by the server again.

// rest has the changes that are still to be requested, in order. Changes of the subscriptions wait until it is empty.
type rest struct{ subscribe, unsubscribe []*subscription }

func (r *rest) isEmpty() bool { return len(r.subscribe) == 0 && len(r.unsubscribe) == 0 }

// nextPart has a request carry as much of the rest as fits. It returns the subscriptions that the server
// does not know of.
func (ts *typeState) nextPart(r *wire.Request) (fresh []*subscription) {
	size := 0
	fits := func(s *subscription, more int) bool {
		more += s.locator().Size(ts.channel.dialect)
		if size > 0 && size+more > ts.limit {
			return false
		}
		size += more
		return true
	}
	n := 0
	for n < len(ts.rest.unsubscribe) && fits(ts.rest.unsubscribe[n], 0) {
		r.Unsubscribe.Add(ts.rest.unsubscribe[n].locator(), ts.channel.dialect)
		n++
	}
	ts.noteAllUnsubscribed(ts.rest.unsubscribe[:n])
	ts.rest.unsubscribe = ts.rest.unsubscribe[n:]
	// A server that goes by names does not know that there is more than one subscription
	// to a name, and need not know that one of them has ended.
	r.Unsubscribe.Names = slices.DeleteFunc(r.Unsubscribe.Names, func(name string) bool { return ts.subs.first[name] != nil })
	for len(ts.rest.unsubscribe) == 0 && len(ts.rest.subscribe) > 0 {
		s := ts.rest.subscribe[0]
		if s.State != ads.Ended && s.wanted() {
			if !fits(s, ts.claims(s)) {
				break
			}
			r.Subscribe.Add(s.locator(), ts.channel.dialect)
			if s.request == 0 {
				s.request = ts.number
			}
			if s.State.IsNew() || s.State.IsRepeat() {
				fresh = append(fresh, s)
			}
		}
		ts.rest.subscribe[0] = nil
		ts.rest.subscribe = ts.rest.subscribe[1:]
	}
	if ts.rest.isEmpty() {
		ts.rest = rest{}
	}
	return fresh
}

// claims returns the size of the versions that the first request claims for a subscription. If that is too much for one
// request, it claims nothing. A collection that comes in a later request is not claimed either: no server would remove a
// member whose version it was not told.
func (ts *typeState) claims(s *subscription) int {
	if ts.announced() {
		if s.isCollection() && !s.isListed() {
			ts.forgetAnswers(s)
		}
		return 0
	}
	size := ts.versionsSize(s)
	if size > ts.limit {
		ts.forgetAnswers(s)
		return 0
	}
	return size
}
