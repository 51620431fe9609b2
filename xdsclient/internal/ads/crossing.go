package ads

import (
	"maps"

	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
)

// In SotW a server ignores requests that answer an older response than its last one ("stale"
// ones: Envoy, xDS protocol, "ACK and NACK", "When to send an update"): the client will answer
// the last one too, and says then what it wants. So what happened in between is lost on the
// server. It does not notice that something was left out and asked for again, does not send it,
// and the client would wait until the resource timer.
//
// A response that comes after a request which left something out may have crossed it. Then the
// reply first repeats the last list, so that the server notices what was left out; and what was
// asked for again meanwhile, and is not in the response, is left out and asked for once more.
// The reply may be crossed by the next response, so that goes on for maxCrossings responses.
// Types whose responses have the full state, and are asked for by name, need none of this: what
// a response has, and was left out, shows that it crossed a request. With locators it may be for
// a subscription that goes on, too.
//
// A full state that omits a resource deletes it. If the resource was left out and asked for again,
// the full state may be that of the list without it, and have crossed the last request: the
// resource is kept, and asked for once more. If it does not come then, the resource timer ends it.

// MaxRepeats bounds how often a subscription is asked for again for this reason. The client
// cannot tell a response that crossed its request from one that has nothing to do with it, and
// a server may be silent because it has nothing.
const MaxRepeats = 4

// maxCrossings is how many responses are taken to have been under way when the server read a
// request.
const maxCrossings = 4

// MaxLeftOut bounds what is remembered of requests that left something out. If there is more,
// all that is asked for counts as asked for again.
const MaxLeftOut = 4096

// crossings is what is remembered of the requests and responses of a stream that may have
// crossed each other.
type crossings struct {
	// heard is the number of the last response.
	heard uint64
	// leftOut is what requests did not list any more, with the number of responses since.
	leftOut map[locatorKey]int
	// number counts the requests that changed subscriptions, and read is the last of them that
	// a delta server is known to have read. left has the names that a subscription was given
	// up of, with the number of the request.
	number, read uint64
	left         map[string]uint64
}

// locatorKey is what a SotW request lists: a name, or a locator if the server goes by those.
type locatorKey struct{ name, constraints string }

// noteLeftOut remembers what a request does not list any more.
func (c *crossings) noteLeftOut(l wire.Locator) {
	if c.leftOut == nil {
		c.leftOut = make(map[locatorKey]int)
	}
	if len(c.leftOut) < MaxLeftOut {
		c.leftOut[locatorKey{l.Name, l.Constraints.Key()}] = 0
	}
}

// wasLeftOut reports whether a request may have left out a subscription.
func (c *crossings) wasLeftOut(l wire.Locator, d wire.Dialect) bool {
	key := locatorKey{name: l.Name}
	if d.Locators() {
		key.constraints = l.Constraints.Key()
	}
	_, ok := c.leftOut[key]
	return ok || len(c.leftOut) == MaxLeftOut
}

// forgetLeftOut forgets what was left out long ago, after a response.
func (c *crossings) forgetLeftOut() {
	for key := range c.leftOut {
		if c.leftOut[key]++; c.leftOut[key] == maxCrossings {
			delete(c.leftOut, key)
		}
	}
}

// noteLeft remembers a name that a request gives up, or one of several subscriptions to it.
func (c *crossings) noteLeft(name string) {
	if c.left == nil {
		c.left = make(map[string]uint64)
	}
	if len(c.left) < MaxLeftOut {
		c.left[name] = c.number
	}
}

// forgetRead forgets the names that were given up by requests that the server has read.
func (c *crossings) forgetRead() {
	maps.DeleteFunc(c.left, func(_ string, number uint64) bool { return number <= c.read })
}

// crossed notes that a response came, before its reply is added.
func (q *Requests[S]) crossed(number uint64) {
	if len(q.leftOut) > 0 && !q.showsCrossings() {
		q.relist = true
		for s := range q.subs.All() {
			p := s.progress()
			if p.Pending() && p.asked == q.heard && p.Seen != number && p.repeats < MaxRepeats && q.wasLeftOut(s.Locator(), q.Dialect) {
				p.repeats++
				p.again = true
				q.Touch(s)
			}
		}
	}
	q.forgetLeftOut()
	q.left = nil
	q.heard = number
}

// showsCrossings reports whether a response that crossed a request which left something out has
// what was left out, and nothing else of it.
func (q *Requests[S]) showsCrossings() bool { return q.fullState && !q.Dialect.Locators() }

// KeepsOmitted reports whether a resource that a full state omits, and that the server has sent,
// is not deleted: the server may not have read yet that it was asked for again. The reply lists
// it, and the resource timer begins anew.
func (q *Requests[S]) KeepsOmitted(s S) bool {
	p := s.progress()
	if !q.wasLeftOut(s.Locator(), q.Dialect) {
		return false
	}
	if !p.KeptOmitted() {
		p.State, p.omitted = Unsent, true
		q.Touch(s)
	}
	return true
}

// askAgain reports whether a subscription has to be left out of a request, so that the next one
// asks for it again. A delta server "must still provide" what it is asked for again, a SotW
// server keeps silent (Envoy, xDS protocol, "How the client specifies what resources to
// return").
func (q *Requests[S]) askAgain(s S) bool {
	switch p := s.progress(); {
	case p.State == Doubted:
		p.State = Unsent
	case p.again: // its resource timer goes on
		p.again, p.asked = false, q.heard
	default:
		return false
	}
	q.Touch(s)
	return true
}

// unlist notes, before a reply that repeats the last list, that the server will take what was
// sent for a subscription since as not subscribed to. It has to be asked for like any other,
// and a full state without it says nothing.
func (q *Requests[S]) unlist() {
	for s := range q.touched {
		if p := s.progress(); p.request == 0 && p.State == Received {
			p.State = Unsent
		}
	}
}

// Omits reports whether the server has sent its full state, without the resource, since it was
// asked for the subscription, or shortly before.
func (q *Requests[S]) Omits(s S) bool {
	p := s.progress()
	return q.fullState && !q.Dialect.Incremental() && (p.omitted || p.asked < q.heard && p.Seen <= p.asked)
}

// A removal or an error that names no constraints is for all subscriptions to a name that the
// server knows of. If it was sent before the server read the request for one of them, it is for
// the others only: a client that moves from one variant to another would take what ends the old
// one for the answer to the new one. So such a denial of a subscription that has not been
// answered is doubted, once, if the server may have known of another subscription to the name:
// the server is asked again, and what it says next counts.

// Doubts reports whether a denial without constraints, in the response of the given number, is
// not to be believed of a subscription at a server that is asked for locators.
func (q *Requests[S]) Doubts(s S, number uint64) bool {
	switch p := s.progress(); {
	case p.doubted == number:
		return true // it said so before
	case p.State == Unsent && q.knewOther(s):
		return true // it has yet to be asked for
	case !p.Pending() || p.doubted != 0 || !q.knewOther(s):
		return false
	default:
		p.doubted, p.again = number, true
		q.Touch(s)
		return true
	}
}

// knewOther reports whether the server may have known of another subscription to the name when
// it had not read the request for this one.
func (q *Requests[S]) knewOther(s S) bool {
	p, name := s.progress(), s.Locator().Name
	if p.request > 0 && p.request <= q.read {
		return false
	}
	if q.left[name] > q.read || len(q.left) == MaxLeftOut {
		return true
	}
	var none S
	for other := q.subs.First(name); other != none; other = q.subs.Sibling(other) {
		if o := other.progress(); o.request > 0 && (p.request == 0 || o.request < p.request) {
			return true
		}
	}
	return false
}

// NoteRead notes that the server has sent what a subscription is for. Unless that can be for
// another one, the server has read the request, and those before it.
func (q *Requests[S]) NoteRead(s S) {
	p := s.progress()
	p.omitted = false
	if q.Dialect.Locators() && q.Dialect.Incremental() && p.Pending() && !q.knewOther(s) {
		q.read = max(q.read, p.request)
	}
}
