package xdsclient

import (
	"slices"

	"github.com/dynxds/dynxds/xdsclient/dynparam"
	"github.com/dynxds/dynxds/xdsclient/internal/ads"
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

// maxRepeats bounds how often a subscription is asked for again for this reason. The client
// cannot tell a response that crossed its request from one that has nothing to do with it, and
// a server may be silent because it has nothing.
const maxRepeats = 4

// maxCrossings is how many responses are taken to have been under way when the server read a
// request.
const maxCrossings = 4

// maxUnsubscribed bounds the unsubscriptions that are remembered. If there are more,
// every subscription counts as asked for again.
const maxUnsubscribed = 4096

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
func (ts *typeState) noteUnsubscribed(l wire.Locator) {
	gone := unsubscription{l.Constraints, ts.number, ts.responses}
	if ts.unsubscribed == nil {
		ts.unsubscribed = make(map[string][]unsubscription)
	}
	list := ts.unsubscribed[l.Name]
	if i := slices.IndexFunc(list, gone.same); i >= 0 {
		list[i] = gone
	} else if ts.unsubscriptions < maxUnsubscribed {
		ts.unsubscribed[l.Name] = append(list, gone)
		ts.unsubscriptions++
	}
}

func (u *unsubscription) same(other unsubscription) bool {
	return u.constraints.Equal(other.constraints)
}

// noteListed notes that a SotW request lists a subscription that the last one did not. A server that goes by names knows it by
// another subscription to the name.
func (ts *typeState) noteListed(s *subscription) {
	name := s.resource.key.name
	s.request, s.listed = ts.number, ts.responses
	if _, known := slices.BinarySearch(ts.listed.Names, name); !known || ts.channel.dialect.Locators {
		return
	}
	for other := range ts.subs.first[name].siblings() {
		if other.isListed() && other.request < s.request {
			s.request, s.listed = other.request, other.listed
		}
	}
}

// wasUnsubscribedLike reports whether requests that the server may not have read when it sent the last response
// unsubscribed from a locator of a name that is like this.
func (ts *typeState) wasUnsubscribedLike(name string, like func(*unsubscription) bool) bool {
	for i := range ts.unsubscribed[name] {
		if l := &ts.unsubscribed[name][i]; l.request > ts.read && like(l) {
			return true
		}
	}
	return ts.unsubscriptions == maxUnsubscribed
}

// wasUnsubscribed reports the same of the locator of a subscription.
func (ts *typeState) wasUnsubscribed(s *subscription) bool {
	return ts.wasUnsubscribedLike(s.resource.key.name, func(u *unsubscription) bool {
		return !ts.channel.dialect.Locators || s.resource.constraints.Equal(u.constraints)
	})
}

// forgetUnsubscribed forgets the unsubscriptions of requests that the server has read: a delta server is known
// to have read some, and in SotW old requests count as read.
func (ts *typeState) forgetUnsubscribed() {
	read := func(l unsubscription) bool {
		return l.request <= ts.read || !ts.channel.dialect.Incremental && l.responses+maxCrossings <= ts.responses
	}
	ts.unsubscriptions = 0
	for name, list := range ts.unsubscribed {
		if list = slices.DeleteFunc(list, read); len(list) == 0 {
			delete(ts.unsubscribed, name)
			continue
		}
		ts.unsubscribed[name] = list
		ts.unsubscriptions += len(list)
	}
}

// crossed notes that a response came, before its reply is added.
func (ts *typeState) crossed(number uint64) {
	if len(ts.unsubscribed) > 0 && (!ts.typ.FullStateInSotW || ts.channel.dialect.Locators) {
		ts.repeatPreviousList = true
		for s := range ts.subs.all() {
			if s.seen != number && s.repeats < maxRepeats && ts.wasUnsubscribed(s) && s.step(ads.Crossed) == ads.Ask {
				s.repeats++
			}
		}
	}
	ts.forgetUnsubscribed()
}

// omit notes that a full state does not have the resource of a subscription that requests list. The
// server may not have read yet that it was asked for again, or at all, if it has sent the resource for another
// subscription. Then the reply lists it, and the resource timer starts again.
func (ts *typeState) omit(s *subscription) ads.Effect {
	if ts.hasRead(s) || ts.responses > s.listed+maxCrossings {
		return s.step(ads.Omitted)
	}
	return s.step(ads.OmittedEarlier)
}

// leaveOutToReask reports whether a subscription has to be omitted from a request, so that the next one
// asks for it again. A delta server "must still provide" what it is asked for again, a SotW
// server keeps silent (Envoy, xDS protocol, "How the client specifies what resources to
// return").
func (ts *typeState) leaveOutToReask(s *subscription) bool {
	if s.step(ads.LeftOut) == ads.Ignore {
		return false
	}
	if !ts.wasUnsubscribed(s) {
		s.before = s.request
	}
	s.request = 0
	return true
}

// unlist notes that a reply repeats the last list, without newer subscriptions.
func (ts *typeState) unlist() {
	for s := range ts.touched {
		if !s.isListed() {
			s.step(ads.NotListed)
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

// ignoresDenial reports whether a denial, in the response of the given number, does not count for
// a subscription at a server that is asked for locators. scoped says that it names constraints.
func (ts *typeState) ignoresDenial(s *subscription, number uint64, scoped bool) bool {
	older := !scoped && ts.knew(s, s.resource.key.name, anyConstraints)
	switch {
	case s.ignoredDenialIn == number:
		return true // it said so before
	case s.ignoredDenialIn != 0 || !older:
		return false
	case s.step(ads.DeniedForAnother) == ads.Ask:
		s.ignoredDenialIn = number
	}
	return true
}

func anyConstraints(dynparam.Constraints) bool { return true }

// hasRead reports whether the server is known to have read the request for a subscription.
func (ts *typeState) hasRead(s *subscription) bool {
	return s.request > 0 && s.request <= ts.read
}

// knew reports whether the server may have known of a subscription to a name with other constraints, that are like this, when
// it had not read the request for a subscription.
func (ts *typeState) knew(s *subscription, name string, like func(dynparam.Constraints) bool) bool {
	return !ts.hasRead(s) && ts.hasOther(s, name, like, func(other *subscription) bool {
		return other.request > 0 && (s.request == 0 || other.request < s.request)
	})
}

// hasOther reports whether a name has another subscription with constraints like this that counts, or had one whose end the server
// may not have read.
func (ts *typeState) hasOther(s *subscription, name string, like func(dynparam.Constraints) bool, counts func(other *subscription) bool) bool {
	for other := range ts.subs.first[name].siblings() {
		if counts(other) && like(other.resource.constraints) {
			return true
		}
	}
	return ts.wasUnsubscribedLike(name, func(l *unsubscription) bool {
		return !l.constraints.Equal(s.resource.constraints) && like(l.constraints)
	})
}

// gaveUp reports whether the server may not know yet that a subscription to a name has ended that a resource with
// these parameters is for.
func (ts *typeState) gaveUp(name string, parameters dynparam.Parameters) bool {
	return ts.wasUnsubscribedLike(name, func(l *unsubscription) bool { return l.constraints.Match(parameters) })
}

// mayBeForAnother reports whether a resource with these parameters may be in a response for another subscription to
// the name, or for one that the server may not know to have ended.
func (ts *typeState) mayBeForAnother(s *subscription, parameters dynparam.Parameters) bool {
	like := func(c dynparam.Constraints) bool { return c.Match(parameters) }
	return ts.hasOther(s, s.resource.key.name, like, func(other *subscription) bool { return other != s })
}

// noteRead notes that the server has sent the resource of a subscription, with these parameters. Unless the resource
// can be for another subscription, or an earlier one, or is in a collection, the server has read the request, and all requests
// before it.
func (ts *typeState) noteRead(s *subscription, parameters dynparam.Parameters, collected bool) {
	s.repeats, s.ignoredDenialIn = 0, 0
	if !ts.channel.dialect.Locators && ts.channel.dialect.Incremental || collected {
		return
	}
	if ts.knew(s, s.resource.key.name, func(c dynparam.Constraints) bool { return c.Match(parameters) }) {
		return
	}
	if ts.wasUnsubscribed(s) {
		ts.read = max(ts.read, s.before)
	} else {
		ts.read = max(ts.read, s.request)
	}
}
