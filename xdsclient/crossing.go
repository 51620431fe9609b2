package xdsclient

import (
	"cmp"
	"strings"
)

// In the state-of-the-world protocol a server ignores requests that answer an older
// response than its last one ("stale" ones: Envoy, xDS protocol, "ACK and NACK", "When
// to send an update"): the client will answer the last one too, and says then what it
// wants. So what happened in between is lost on the server. Of something that was left
// out and asked for again it takes no notice, and does not send it, and the client would
// wait until the resource timer.
//
// A response that comes after a request which left something out may have crossed it.
// Then the answer first repeats what was last listed, so that the server takes notice
// of what was left out; and what was asked for again meanwhile, and is not in the
// response, is left out and asked for once more. Types with FullStateInSotW need none of
// this: a response that crosses a request has all that the server believes to be
// subscribed to.

// maxRepeats bounds how often a subscription is asked for again for this reason. The
// client cannot tell a response that crossed its request from one that has nothing to do
// with it, and a server may be silent because it has nothing.
const maxRepeats = 4

// maxLeftOut bounds what is remembered of requests that no response has followed yet.
// If there is more, all that is asked for counts as asked for again.
const maxLeftOut = 4096

// note takes notice of what a request leaves out that the last one listed.
func (ts *typeState) note(now *targets) {
	if !ts.announced || ts.typ.FullStateInSotW {
		return
	}
	leave := func(l locator) {
		if ts.leftOut == nil {
			ts.leftOut = make(map[resourceKey]struct{})
		}
		if len(ts.leftOut) < maxLeftOut {
			ts.leftOut[resourceKey{name: l.name, variant: l.constraints.Key()}] = struct{}{}
		}
	}
	if ts.locators {
		missing(now.locators, ts.listed.locators, locator.compare, leave)
	} else {
		missing(now.names, ts.listed.names, strings.Compare, func(name string) { leave(locator{name: name}) })
	}
}

// rejoined reports whether a request may have left out a subscription.
func (ts *typeState) rejoined(s *subscription) bool {
	key := resourceKey{name: s.resource.key.name}
	if ts.locators {
		key.variant = s.resource.key.variant
	}
	_, ok := ts.leftOut[key]
	return ok || len(ts.leftOut) == maxLeftOut
}

// crossed is told of a response, by its number among those of the channel, before it is
// answered.
func (ts *typeState) crossed(number uint64) {
	if len(ts.leftOut) > 0 {
		ts.relist = true
		for s := range ts.subs.all() {
			pending := s.state == subscriptionSending || s.state == subscriptionRequested
			if pending && s.asked == ts.heard && s.seen != number && s.repeats < maxRepeats && ts.rejoined(s) {
				s.repeats++
				s.repeat = true
				ts.touch(s)
			}
		}
		ts.leftOut = nil
	}
	ts.heard = number
}

// missing calls f for what is in one list and not in another. Both are in order.
func missing[T any](from, list []T, compare func(a, b T) int, f func(T)) {
	for _, x := range list {
		for len(from) > 0 && compare(from[0], x) < 0 {
			from = from[1:]
		}
		if len(from) == 0 || compare(from[0], x) > 0 {
			f(x)
		}
	}
}

// compare is the order of locators in requests.
func (l locator) compare(other locator) int {
	return cmp.Or(strings.Compare(l.name, other.name), strings.Compare(l.constraints.Key(), other.constraints.Key()))
}
