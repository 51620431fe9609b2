package ads

import (
	"slices"

	"github.com/dynxds/dynxds/xdsclient/dynparam"
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
// resource is kept, and the reply lists it. If the server does not send it then, a later full state
// or the resource timer deletes it.

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
	// lastResponse is the number of the last response.
	lastResponse uint64
	// number counts the requests that changed subscriptions, and read is the last of them that
	// a delta server is known to have read.
	number, read uint64
	// left has what requests gave up or left out, by name, and lefts counts it.
	left  map[string][]leftLocator
	lefts int
}

// leftLocator is what a request gave up or left out, with the number of the request, and of the responses for the
// type before it. It has constraints if the server goes by locators.
type leftLocator struct {
	constraints        dynparam.Constraints
	request, responses uint64
}

// noteLeft remembers what a request does not list any more, or gives up.
func (q *Requests[S]) noteLeft(l wire.Locator) {
	if !q.Dialect.Locators() {
		l.Constraints = dynparam.Constraints{}
	}
	left := leftLocator{l.Constraints, q.number, q.responses}
	if q.left == nil {
		q.left = make(map[string][]leftLocator)
	}
	list := q.left[l.Name]
	if i := slices.IndexFunc(list, left.same); i >= 0 {
		list[i] = left
	} else if q.lefts < MaxLeftOut {
		q.left[l.Name] = append(list, left)
		q.lefts++
	}
}

func (l *leftLocator) same(other leftLocator) bool { return l.constraints.Equal(other.constraints) }

// noteAllLeft remembers what a delta request gives up.
func (q *Requests[S]) noteAllLeft(left []S) {
	if !q.Dialect.Locators() || len(left) == 0 {
		return
	}
	q.forgetLeft()
	for _, s := range left {
		q.noteLeft(s.Locator())
	}
}

// wasLeft reports whether requests that the server may not have read when it sent the last response gave up or
// left out a locator of a name that is like this.
func (q *Requests[S]) wasLeft(name string, like func(*leftLocator) bool) bool {
	for i := range q.left[name] {
		if l := &q.left[name][i]; l.request > q.read && like(l) {
			return true
		}
	}
	return q.lefts == MaxLeftOut
}

// wasLeftOut reports the same of the locator of a subscription.
func (q *Requests[S]) wasLeftOut(s S) bool {
	l := s.Locator()
	return q.wasLeft(l.Name, func(left *leftLocator) bool { return !q.Dialect.Locators() || l.Constraints.Equal(left.constraints) })
}

// forgetLeft forgets what was given up or left out by requests that the server has read: those that a delta
// server is known to have read, and in SotW those of long ago.
func (q *Requests[S]) forgetLeft() {
	read := func(l leftLocator) bool {
		return l.request <= q.read || !q.Dialect.Incremental() && l.responses+maxCrossings <= q.responses
	}
	q.lefts = 0
	for name, list := range q.left {
		if list = slices.DeleteFunc(list, read); len(list) == 0 {
			delete(q.left, name)
			continue
		}
		q.left[name] = list
		q.lefts += len(list)
	}
}

// crossed notes that a response came, before its reply is added.
func (q *Requests[S]) crossed(number uint64) {
	if len(q.left) > 0 && (!q.fullState || q.Dialect.Locators()) {
		q.relist = true
		for s := range q.subs.All() {
			p := s.progress()
			if p.Pending() && p.asked == q.lastResponse && p.Seen != number && p.repeats < MaxRepeats && q.wasLeftOut(s) {
				p.repeats++
				p.again = true
				q.Touch(s)
			}
		}
	}
	q.forgetLeft()
	q.lastResponse = number
}

// SaysAbsent reports whether the server has said that it does not have a resource, by a full state
// without it that answers the request for it. The first response after several requests is taken for
// the answer to the first of them:
//
//	client asks for a
//	client asks for a and b
//	server sends a           answers the first request
//	server sends a           says that there is no b
func (q *Requests[S]) SaysAbsent(s S) bool {
	p := s.progress()
	return q.fullState && !q.Dialect.Incremental() && p.older < q.responses && p.Seen <= p.asked
}

// Expire notes that the server did not send what a subscription is for in time. It has read the request
// by the time of its next response.
func (q *Requests[S]) Expire(s S) {
	p := s.progress()
	p.State, p.older = Missing, min(p.older, q.responses)
}

// KeepsOmitted reports whether a resource that a full state omits, and that the server has sent,
// is not deleted. parameters are those of the resource. The server may not have read yet that it was asked for again, or at all, if it has sent the
// resource for another subscription. The reply lists it, and the resource timer starts again.
func (q *Requests[S]) KeepsOmitted(s S, parameters dynparam.Parameters) bool {
	p := s.progress()
	unread := q.Dialect.Locators() && q.responses <= p.listed+maxCrossings && (p.State == Received || p.Disputed()) &&
		q.knew(s, func(c dynparam.Constraints) bool { return c.Match(parameters) })
	if !unread && !q.wasLeftOut(s) {
		return false
	}
	if !p.Disputed() {
		p.State, p.disputed = Unsent, true
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
		p.again, p.asked = false, q.lastResponse
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

// Omits reports whether the server has said that it does not have a resource: by a denial that
// was doubted, or by a full state without it since it was asked for the subscription or shortly
// before.
func (q *Requests[S]) Omits(s S) bool {
	p := s.progress()
	full := q.fullState && !q.Dialect.Incremental()
	return p.disputed || full && p.asked < q.lastResponse && p.Seen <= p.asked
}

// A removal or an error that names no constraints is for all subscriptions to a name that the
// server knows of. If it was sent before the server read the request for one of them, it is for
// the others only: a client that moves from one variant to another would take what ends the old
// one for the answer to the new one. One that names constraints may likewise be for an earlier
// subscription with the same ones: a client that moves away and back would lose what is there
// again. So such a denial is doubted, once, if the server may have known of another subscription:
// it is asked again, and what it says next counts.

// Doubts reports whether a denial, in the response of the given number, is not to be believed of
// a subscription at a server that is asked for locators. scoped says that it names constraints.
func (q *Requests[S]) Doubts(s S, number uint64, scoped bool) bool {
	p := s.progress()
	older := scoped && q.knewEarlier(s) || !scoped && q.knewOther(s)
	switch {
	case p.doubted == number:
		return true // it said so before
	case p.State == Unsent && older:
		return true // it has yet to be asked for
	case p.doubted != 0 || !older:
		return false
	case p.Pending():
		p.again = true
	case p.State == Received:
		p.State, p.disputed = Doubted, true
	default:
		return false
	}
	p.doubted = number
	q.Touch(s)
	return true
}

// knewEarlier reports whether the server may have known of an earlier subscription to a locator
// when it had not read the request for the present one.
func (q *Requests[S]) knewEarlier(s S) bool { return !q.hasRead(s.progress()) && q.wasLeftOut(s) }

// hasRead reports whether the server is known to have read the request for a subscription.
func (q *Requests[S]) hasRead(p *Progress) bool { return p.request > 0 && p.request <= q.read }

// knewOther reports whether the server may have known of another subscription to the name when
// it had not read the request for this one.
func (q *Requests[S]) knewOther(s S) bool {
	return q.knew(s, func(dynparam.Constraints) bool { return true })
}

// knew does so for another subscription with constraints that are like this.
func (q *Requests[S]) knew(s S, like func(dynparam.Constraints) bool) bool {
	p, name := s.progress(), s.Locator().Name
	if q.hasRead(p) {
		return false
	}
	own := s.Locator().Constraints
	if q.wasLeft(name, func(l *leftLocator) bool {
		askedAgain := p.request > 0 && p.request < l.request && l.constraints.Equal(own)
		return !askedAgain && like(l.constraints)
	}) {
		return true
	}
	var none S
	for other := q.subs.First(name); other != none; other = q.subs.Sibling(other) {
		if o := other.progress(); o.request > 0 && (p.request == 0 || o.request < p.request) && like(other.Locator().Constraints) {
			return true
		}
	}
	return false
}

// GaveUpAny reports whether the server may not know yet that some subscription has ended.
func (q *Requests[S]) GaveUpAny() bool { return q.lefts > 0 }

// GaveUp reports whether the server may not know yet that a subscription to a name has ended that a resource with
// these parameters is for.
func (q *Requests[S]) GaveUp(name string, parameters dynparam.Parameters) bool {
	return q.wasLeft(name, func(l *leftLocator) bool { return l.constraints.Match(parameters) })
}

// MayBeForAnother reports whether a resource with these parameters may be in a response for another subscription to
// the name, or for one that the server may not know to have ended.
func (q *Requests[S]) MayBeForAnother(s S, parameters dynparam.Parameters) bool {
	own := s.Locator()
	if q.wasLeft(own.Name, func(l *leftLocator) bool {
		return !l.constraints.Equal(own.Constraints) && l.constraints.Match(parameters)
	}) {
		return true
	}
	var none S
	for other := q.subs.First(own.Name); other != none; other = q.subs.Sibling(other) {
		if other != s && other.Locator().Constraints.Match(parameters) {
			return true
		}
	}
	return false
}

// NoteRead notes that the server has sent what a subscription is for, a resource with these parameters. Unless that
// can be for another subscription, or is in a collection, the server has read the request, and those before it.
func (q *Requests[S]) NoteRead(s S, parameters dynparam.Parameters, collected bool) {
	p := s.progress()
	p.disputed, p.doubted = false, 0
	if !q.Dialect.Locators() || collected {
		return
	}
	if !q.knew(s, func(c dynparam.Constraints) bool { return c.Match(parameters) }) {
		q.read = max(q.read, p.request)
	}
}
