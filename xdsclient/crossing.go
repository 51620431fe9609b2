package xdsclient

import (
	"maps"

	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
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
// response, is left out and asked for once more. The answer may be crossed by the next
// response, so that goes on for maxCrossings responses. Types with FullStateInSotW need none of
// this: a response that crosses a request has all that the server believes to be
// subscribed to.

// maxRepeats bounds how often a subscription is asked for again for this reason. The
// client cannot tell a response that crossed its request from one that has nothing to do
// with it, and a server may be silent because it has nothing.
const maxRepeats = 4

// maxCrossings is how many responses are taken to have been under way when the server read
// a request.
const maxCrossings = 4

// maxLeftOut bounds what is remembered of requests that no response has followed yet.
// If there is more, all that is asked for counts as asked for again.
const maxLeftOut = 4096

// note takes notice of what a request leaves out that the last one listed.
func (ts *typeState) note(now *wire.Targets) {
	if !ts.announced || ts.typ.FullStateInSotW {
		return
	}
	leave := func(l wire.Locator) {
		if ts.leftOut == nil {
			ts.leftOut = make(map[resourceKey]int)
		}
		if len(ts.leftOut) < maxLeftOut {
			ts.leftOut[resourceKey{name: l.Name, variant: l.Constraints.Key()}] = 0
		}
	}
	now.Missing(&ts.listed, ts.dialect, leave)
}

// rejoined reports whether a request may have left out a subscription.
func (ts *typeState) rejoined(s *subscription) bool {
	key := resourceKey{name: s.resource.key.name}
	if ts.dialect.Locators() {
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
			if s.pending() && s.asked == ts.heard && s.seen != number && s.repeats < maxRepeats && ts.rejoined(s) {
				s.repeats++
				s.repeat = true
				ts.touch(s)
			}
		}
		for key := range ts.leftOut {
			if ts.leftOut[key]++; ts.leftOut[key] == maxCrossings {
				delete(ts.leftOut, key)
			}
		}
	}
	ts.left = nil
	ts.heard = number
}

// unlist notes, before an answer that lists what the last request did, that the server will
// take what was sent for a subscription since as not subscribed to. It has to be asked for
// as any other, and a full state without it says nothing.
func (ts *typeState) unlist() {
	for s := range ts.touched {
		if s.request == 0 && s.state == subscriptionReceived {
			s.state = subscriptionUnsent
		}
	}
}

// A removal or an error that names no constraints is for all subscriptions to a name that
// the server knows of. If it was sent before the server read the request for one of them, it
// is for those before only: a client that moves from one variant to another would take what
// ends the old one for the answer to the new one. So such a denial of a subscription that
// has not been answered is doubted, once, if the server may have known of another
// subscription to the name: the server is asked again, and what it says next counts.

// doubts reports whether a denial in the response is not to be believed of a subscription.
func (u *update) doubts(s *subscription, sc *scope) bool {
	ts := u.types
	if !sc.all || !ts.dialect.Locators() || s.resource.collection != nil {
		return false
	}
	switch {
	case s.doubted == u.number:
		return true // it said so before
	case s.state == subscriptionUnsent && ts.knownBefore(s):
		return true // it is asked for yet
	case !s.pending() || s.doubted != 0 || !ts.knownBefore(s):
		return false
	}
	s.doubted, s.repeat = u.number, true
	ts.touch(s)
	return true
}

// pending reports whether the server was asked for a subscription and has not answered.
func (s *subscription) pending() bool {
	return s.state == subscriptionSending || s.state == subscriptionRequested
}

// inDoubt reports whether the server is to be asked again about a subscription.
func (s *subscription) inDoubt() bool {
	return s.state == subscriptionDoubted || s.repeat && s.pending()
}

// knownBefore reports whether the server may have known of another subscription to the
// name when it has not read the request for this one.
func (ts *typeState) knownBefore(s *subscription) bool {
	if s.request > 0 && s.request <= ts.read {
		return false
	}
	if ts.left[s.resource.key.name] > ts.read || len(ts.left) == maxLeftOut {
		return true
	}
	for other := range ts.subs[s.resource.key.name].siblings() {
		if other.request > 0 && (s.request == 0 || other.request < s.request) {
			return true
		}
	}
	return false
}

// leave notes which names a request gives up, or one of several subscriptions to them.
func (ts *typeState) leave(subs []*subscription) {
	if !ts.dialect.Locators() || len(subs) == 0 {
		return
	}
	maps.DeleteFunc(ts.left, func(_ string, number uint64) bool { return number <= ts.read })
	if ts.left == nil {
		ts.left = make(map[string]uint64)
	}
	for _, s := range subs {
		if len(ts.left) < maxLeftOut {
			ts.left[s.resource.key.name] = ts.requests
		}
	}
}

// answers notes that the server has read the request for a subscription, and those before,
// if what it sends cannot be for another one.
func (ts *typeState) answers(s *subscription) {
	if ts.dialect.Locators() && ts.dialect.Incremental() && s.pending() && !ts.knownBefore(s) {
		ts.read = max(ts.read, s.request)
	}
}
