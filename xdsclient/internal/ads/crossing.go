package ads

import (
	"slices"

	"github.com/dynxds/dynxds/xdsclient/dynparam"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
)

// Requests and responses cross. A SotW server ignores a request that answers an older response than its
// last one ("stale": Envoy, xDS protocol, "ACK and NACK", "When to send an update"): the client will answer the last
// one too, and lists its subscriptions then. The changes in between are lost on the server:
//
//	client omits b from its list     server sends response 2, before it reads that
//	client lists b again             server ignores both requests: they do not answer response 2
//	client answers 2, with b listed  server sees no change, and sends no b
//
// So the answer to response 2 repeats the previous list, without b (repeatPreviousList), and the request after it
// lists b. A subscription that was asked for again before, and is not in the response, is omitted from a list and asked for once
// more (Crossed). The answer may cross the next response, so that goes on for maxCrossings responses. Types whose
// responses have the full state, and are asked for by name, need none of this: a response with an omitted resource
// has crossed a request, as the client can see. With locators it may be for another subscription.
//
// A full state that omits a resource deletes it, unless it may be that of a list without the resource:
//
//	client omits b, then lists it again  server sends response 2 with b, before it reads either
//	                                     server reads the first, sends response 3 without b
//	client takes b from 2, keeps it though 3 omits it (OmittedEarlier), and answers 3, with b listed
//	                                     server sends b, if there is one
//
// If the server does not send it then, a later full state or the resource timer deletes it.

// MaxRepeats bounds how often a subscription is asked for again for this reason. The client
// cannot tell a response that crossed its request from one that has nothing to do with it, and
// a server may be silent because it has nothing.
const MaxRepeats = 4

// maxCrossings is how many responses are taken to have been under way when the server read a
// request.
const maxCrossings = 4

// MaxUnsubscribed bounds the unsubscriptions that are remembered. If there are more,
// every subscription counts as asked for again.
const MaxUnsubscribed = 4096

// crossings remembers the requests and responses of a stream that may have
// crossed each other.
type crossings struct {
	// number counts the requests that changed subscriptions: each has a number. first is the number of the stream's first
	// request, or 0, and read the number of the last request that the server has certainly read.
	number, first, read uint64
	// unsubscribed has the unsubscriptions by name, and unsubscriptions counts them.
	unsubscribed    map[string][]unsubscription
	unsubscriptions int
}

// unsubscription is a locator that a delta request unsubscribed from, or that a SotW request omitted from its list,
// with the number of the request, and of the responses for the type before it. Without constraints, the server goes
// by names.
type unsubscription struct {
	constraints        dynparam.Constraints
	request, responses uint64
}

// noteUnsubscribed remembers an unsubscription. The locator has no constraints if the server goes by names.
func (q *Requests[S]) noteUnsubscribed(l wire.Locator) {
	gone := unsubscription{l.Constraints, q.number, q.responses}
	if q.unsubscribed == nil {
		q.unsubscribed = make(map[string][]unsubscription)
	}
	list := q.unsubscribed[l.Name]
	if i := slices.IndexFunc(list, gone.same); i >= 0 {
		list[i] = gone
	} else if q.unsubscriptions < MaxUnsubscribed {
		q.unsubscribed[l.Name] = append(list, gone)
		q.unsubscriptions++
	}
}

func (u *unsubscription) same(other unsubscription) bool {
	return u.constraints.Equal(other.constraints)
}

// noteAllUnsubscribed remembers the unsubscriptions of a delta request.
func (q *Requests[S]) noteAllUnsubscribed(subs []S) {
	if !q.Dialect.Locators || len(subs) == 0 {
		return
	}
	q.forgetUnsubscribed()
	for _, s := range subs {
		q.noteUnsubscribed(s.Locator())
	}
}

// noteListed notes that a SotW request lists a subscription that the last one did not. A server that goes by names knows it by
// another subscription to the name.
func (q *Requests[S]) noteListed(s S) {
	p, name := s.progress(), s.Locator().Name
	p.request, p.listed = q.number, q.responses
	if _, known := slices.BinarySearch(q.listed.Names, name); !known || q.Dialect.Locators {
		return
	}
	var none S
	for other := q.subs.First(name); other != none; other = q.subs.Sibling(other) {
		if o := other.progress(); o.Listed() && o.request < p.request {
			p.request, p.listed = o.request, o.listed
		}
	}
}

// wasUnsubscribedLike reports whether requests that the server may not have read when it sent the last response
// unsubscribed from a locator of a name that is like this.
func (q *Requests[S]) wasUnsubscribedLike(name string, like func(*unsubscription) bool) bool {
	for i := range q.unsubscribed[name] {
		if l := &q.unsubscribed[name][i]; l.request > q.read && like(l) {
			return true
		}
	}
	return q.unsubscriptions == MaxUnsubscribed
}

// wasUnsubscribed reports the same of the locator of a subscription.
func (q *Requests[S]) wasUnsubscribed(s S) bool {
	l := s.Locator()
	return q.wasUnsubscribedLike(l.Name, func(u *unsubscription) bool {
		return !q.Dialect.Locators || l.Constraints.Equal(u.constraints)
	})
}

// forgetUnsubscribed forgets the unsubscriptions of requests that the server has read: a delta server is known
// to have read some, and in SotW old requests count as read.
func (q *Requests[S]) forgetUnsubscribed() {
	read := func(l unsubscription) bool {
		return l.request <= q.read || !q.Dialect.Incremental && l.responses+maxCrossings <= q.responses
	}
	q.unsubscriptions = 0
	for name, list := range q.unsubscribed {
		if list = slices.DeleteFunc(list, read); len(list) == 0 {
			delete(q.unsubscribed, name)
			continue
		}
		q.unsubscribed[name] = list
		q.unsubscriptions += len(list)
	}
}

// crossed notes that a response came, before its reply is added.
func (q *Requests[S]) crossed(number uint64) {
	if len(q.unsubscribed) > 0 && (!q.fullState || q.Dialect.Locators) {
		q.repeatPreviousList = true
		for s := range q.subs.All() {
			p := s.progress()
			if p.Seen != number && p.repeats < MaxRepeats && q.wasUnsubscribed(s) && q.Step(s, Crossed) == Ask {
				p.repeats++
			}
		}
	}
	q.forgetUnsubscribed()
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
	return q.FullState() && s.progress().older < q.responses
}

// Expire notes that the server did not send the resource of a subscription in time. It has read the request by now.
func (q *Requests[S]) Expire(s S) Effect {
	p := s.progress()
	p.older, q.read = min(p.older, q.responses), max(q.read, p.request)
	return q.Step(s, TimedOut)
}

// Omit notes that a full state does not have the resource of a subscription that requests list. The
// server may not have read yet that it was asked for again, or at all, if it has sent the resource for another
// subscription. Then the reply lists it, and the resource timer starts again.
func (q *Requests[S]) Omit(s S) Effect {
	if q.HasRead(s) || q.responses > s.progress().listed+maxCrossings {
		return q.Step(s, Omitted)
	}
	return q.Step(s, OmittedEarlier)
}

// leaveOutToReask reports whether a subscription has to be omitted from a request, so that the next one
// asks for it again. A delta server "must still provide" what it is asked for again, a SotW
// server keeps silent (Envoy, xDS protocol, "How the client specifies what resources to
// return").
func (q *Requests[S]) leaveOutToReask(s S) bool {
	if q.Step(s, LeftOut) == Ignore {
		return false
	}
	p := s.progress()
	if !q.wasUnsubscribed(s) {
		p.before = p.request
	}
	p.request = 0
	return true
}

// unlist notes that a reply repeats the last list, without newer subscriptions.
func (q *Requests[S]) unlist() {
	for s := range q.touched {
		if !s.progress().Listed() {
			q.Step(s, NotListed)
		}
	}
}

// A removal or an error that names no constraints is for all subscriptions to a name that the
// server knows of. If it was sent before the server read the request for one of them, it is for
// the others only: a client that moves from one variant to another would take the end of the old
// one for the answer to the new one. So such a denial is ignored, once, if the server may have known of a subscription
// with other constraints: it is asked again, and its next answer counts:
//
//	client moves from a{env=prod} to a{env=test}  server reads nothing, and sends "there is no a"
//	client ignores that for a{env=test}           server reads the requests, and sends a{env=test}

// IgnoresDenial reports whether a denial, in the response of the given number, does not count for
// a subscription at a server that is asked for locators. scoped says that it names constraints.
func (q *Requests[S]) IgnoresDenial(s S, number uint64, scoped bool) bool {
	p := s.progress()
	older := !scoped && q.knew(s, func(dynparam.Constraints) bool { return true })
	switch {
	case p.ignoredDenialIn == number:
		return true // it said so before
	case p.ignoredDenialIn != 0 || !older:
		return false
	case q.Step(s, DeniedForAnother) == Ask:
		p.ignoredDenialIn = number
	}
	return true
}

// HasRead reports whether the server is known to have read the request for a subscription.
func (q *Requests[S]) HasRead(s S) bool {
	p := s.progress()
	return p.request > 0 && p.request <= q.read
}

// mayBeUnread reports, for a new stream, whether a SotW server may have sent the resource of a subscription for another
// one, and not have read the request for this one, for which it may prefer another variant.
func (q *Requests[S]) mayBeUnread(p *Progress) bool {
	return q.Dialect.Locators && !q.Dialect.Incremental && p.State == Received && !p.read
}

// knew reports whether the server may have known of a subscription to the name with other constraints, that are like this, when
// it had not read the request for this one.
func (q *Requests[S]) knew(s S, like func(dynparam.Constraints) bool) bool {
	p, name := s.progress(), s.Locator().Name
	if q.HasRead(s) {
		return false
	}
	own := s.Locator().Constraints
	if q.wasUnsubscribedLike(name, func(l *unsubscription) bool {
		return !l.constraints.Equal(own) && like(l.constraints)
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
func (q *Requests[S]) GaveUpAny() bool { return q.unsubscriptions > 0 }

// GaveUp reports whether the server may not know yet that a subscription to a name has ended that a resource with
// these parameters is for.
func (q *Requests[S]) GaveUp(name string, parameters dynparam.Parameters) bool {
	return q.wasUnsubscribedLike(name, func(l *unsubscription) bool { return l.constraints.Match(parameters) })
}

// MayBeForAnother reports whether a resource with these parameters may be in a response for another subscription to
// the name, or for one that the server may not know to have ended.
func (q *Requests[S]) MayBeForAnother(s S, parameters dynparam.Parameters) bool {
	own := s.Locator()
	if q.wasUnsubscribedLike(own.Name, func(l *unsubscription) bool {
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

// NoteRead notes that the server has sent the resource of a subscription, with these parameters. Unless the resource
// can be for another subscription, or an earlier one, or is in a collection, the server has read the request, and all requests
// before it.
func (q *Requests[S]) NoteRead(s S, parameters dynparam.Parameters, collected bool) {
	p := s.progress()
	p.repeats, p.ignoredDenialIn = 0, 0
	if !q.Dialect.Locators && q.Dialect.Incremental || collected {
		return
	}
	if q.knew(s, func(c dynparam.Constraints) bool { return c.Match(parameters) }) {
		return
	}
	if q.wasUnsubscribed(s) {
		q.read = max(q.read, p.before)
	} else {
		q.read = max(q.read, p.request)
	}
}
