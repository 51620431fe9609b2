package xdsclient

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"

	"github.com/dynxds/dynxds/internal/dynwire"
	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
	"github.com/dynxds/dynxds/xdsclient/internal/ads"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
)

// The last pass over a response is that through its errors and removals. A
// server can say in four ways that it does not send a resource: by an error in its place, by
// naming it as removed, by omitting it from the full state, and by silence, which is the
// business of the resource timer.

var (
	errDeleted = errors.New("does not exist: the server deleted it")
	errMissing = errors.New("does not exist: the server does not have it")
)

// applyAbsence applies the errors and the names of removed resources.
func (u *update) applyAbsence() {
	each(u.ch.client, u.resp.Errors, u.applyError)
	each(u.ch.client, u.resp.Removed, u.applyRemoval)
	if u.ch.dialect.Locators {
		each(u.ch.client, u.resp.RemovedLocators, u.applyRemoval)
	}
}

// applyOmissions applies that the full state omits resources.
func (u *update) applyOmissions() {
	if u.types.fullState() && u.nameless == 0 {
		u.deleteOmitted()
	}
	u.answerFailing()
}

// deleteOmitted deletes the resources that the server has sent and that the response with its
// full state omits. A resource that it has not sent may come later (Envoy, xDS
// protocol, "Deleting Resources" and "Knowing When a Requested Resource Does Not Exist"), one
// that no request has listed yet is unknown to it, and an error is not repeated (xRFC TP3,
// "Protocol Behavior").
func (u *update) deleteOmitted() {
	for s := range u.types.subs.all() {
		// After a timer that said nothing this is the first answer, unless there is nothing and nobody was told.
		untold := s.State == ads.Silent && s.payload == nil && !s.inherits() && s.err == nil
		if s.seen != u.number && s.isListed() && !untold && u.types.omit(s) == ads.Tell {
			u.delete(s)
		}
	}
}

// delete notes that the server does not have a resource (gRFC A88, "Handling Data
// Errors").
func (u *update) delete(s *subscription) {
	if u.forgetUnwatched(s) {
		return
	}
	s.step(ads.Denied)
	reason := errMissing
	if s.payload != nil || s.inherits() {
		reason = errDeleted
	}
	fault := u.fault(KindDoesNotExist, s.resource, reason)
	u.ch.client.infof("a management server does not have a resource: %v", fault)
	u.dataError(s, fault)
}

// applyRemoval applies that the server has no resource of a name. If the name comes with the
// constraints of a subscription, the same response may have another variant for it.
func (u *update) applyRemoval(n wire.ResourceName) {
	sc, err := u.scopeOf(n)
	if err != nil {
		u.blameError(fmt.Sprintf("removed_resource_names of %q", n.Name), err)
		return
	}
	u.findMeant(n, &sc)
	u.findMembers(n, &sc, false, false)
	for _, s := range u.found {
		switch {
		case s.seen == u.number, u.ignores(s, &sc): // what the response has counts
			continue
		case s.resource.memberOf != nil && u.doubts(s, &sc):
			s.drop()
		case s.resource.memberOf != nil:
			u.removeMember(s, u.fault(KindDoesNotExist, s.resource, errLeft))
		case s.isCollection():
			u.emptyCollection(s)
		default:
			u.delete(s)
		}
		s.seen = u.number
	}
}

// findMeant finds the subscriptions that a server means by a name and a scope.
func (u *update) findMeant(n wire.ResourceName, sc *scope) {
	u.found = u.found[:0]
	add := func(s *subscription) {
		if u.types.asked(s) && sc.covers(s) {
			u.found = append(u.found, s)
		}
	}
	for s := range u.types.subs.named(n.Name).siblings() {
		add(s)
	}
	if len(u.types.byCanonicalName) > 0 {
		for _, s := range u.types.byCanonicalName[xdsname.Canonical(string(n.Name))] {
			add(s)
		}
	}
}

// findMembers adds members of collections to u.found. answers says that the error or removal is an
// answer for their collections, and enter that unknown members are added to their collections.
func (u *update) findMembers(n wire.ResourceName, sc *scope, answers, enter bool) {
	first, name := u.types.collectionsOf(n.Name)
	for s := range first.siblings() {
		if !u.types.asked(s) {
			continue
		}
		before := len(u.found)
		u.found = sc.appendMembers(u.found, s, name, !answers)
		known := len(u.found) > before
		meant := known || sc.all || sc.exact && s.resource.constraints.Match(sc.parameters)
		if !meant || !answers {
			continue
		}
		u.failing = append(u.failing, s)
		if known || !enter {
			continue
		}
		m, err := s.enter(Member{name, sc.parameters})
		if err != nil {
			u.blameError(fmt.Sprintf("%s %q", u.types.typ.Name, n.Name), err)
			continue
		}
		u.found = append(u.found, m)
	}
}

// removeMember notes that the server no longer has a member.
func (u *update) removeMember(m *subscription, fault *Error) {
	whole := m.resource.memberOf
	m.drop()
	if u.ch.standsBy(whole) {
		whole.authority.moveUpTo(u.ch)
	}
	if r := whole.members[m.resource.key]; r != nil && u.ch.serves(whole) {
		whole.expel(r, fault, u.ch.delivery)
	}
}

// emptyCollection notes that a collection has no members.
func (u *update) emptyCollection(s *subscription) {
	for m := range s.members.all() {
		u.removeMember(m, u.fault(KindDoesNotExist, m.resource, errLeft))
	}
	u.answerCollection(s)
	u.markUseful(s.resource)
}

// applyError applies an error that the server sent in place of a resource (xRFC TP3,
// "Protocol Behavior"; gRFC A88, "Support for Errors Provided by the xDS server").
func (u *update) applyError(e wire.ResourceError) {
	code, reason := e.Reason()
	sc, err := u.scopeOf(e.ResourceName)
	if err != nil {
		u.nameless++
		u.blameError(fmt.Sprintf("resource_errors[%d]", e.Index), err)
		return
	}
	u.findMeant(e.ResourceName, &sc)
	failing := len(u.failing)
	// An error for the preferred variant is none for the others that match and that a
	// collection with the same constraints has.
	if len(u.found) == 0 || sc.all || sc.exact {
		u.findMembers(e.ResourceName, &sc, true, code != codes.NotFound)
	}
	if len(u.found) == 0 && len(u.failing) == failing {
		u.unaskedErrors++
		return
	}
	u.serverErrors++
	for _, s := range u.found {
		if s.seen == u.number || u.ignores(s, &sc) { // what the response has counts
			continue
		}
		s.seen = u.number
		u.noteError(s, code, reason, e.Status())
	}
	if code == codes.NotFound {
		for _, s := range u.failing[failing:] {
			u.markUseful(s.resource)
		}
	}
}

// answerFailing notes that errors for members are the server's answer for their
// collections (xRFC TP3, "Wildcard Subscriptions and Glob Collections"), unless it has an
// error for the collection as a whole, which stands until a resource or another error for
// it comes. If the authority follows another server, errors that are not
// final do not count, as with other resources.
func (u *update) answerFailing() {
	for _, s := range u.failing {
		failed := s.State == ads.Failed || s.State == ads.Ended
		_, useful := u.useful[s.resource.authority]
		if !failed && (useful || !u.ch.standsBy(s.resource)) {
			u.answerCollection(s)
		}
	}
}

// forgetUnwatched forgets the answers for a resource, in place of noting an error, if it is no longer watched, and
// reports whether that is so. The server has not been asked yet to stop sending it. A watch that begins before that
// asks again: the error may be older than the watch, and the resource be there by now.
func (u *update) forgetUnwatched(s *subscription) bool {
	r := s.resource
	if r.memberOf != nil || r.isCollection() || s.wanted() {
		return false
	}
	s.step(ads.DeniedUnwatched)
	s.lastAnswer = lastAnswer{}
	if !r.watched() {
		r.lastAnswer = lastAnswer{}
	}
	return true
}

// blameError notes what is wrong with an error that the server sent in place of a resource.
func (u *update) blameError(where string, err error) {
	u.invalidErrors++
	u.faults.add(where, err)
}

// noteError notes that the server sent an error in place of a resource.
func (u *update) noteError(s *subscription, code codes.Code, reason error, sent []byte) {
	if u.forgetUnwatched(s) {
		return
	}
	s.step(ads.Errored)
	fault := u.fault(kindOf(code, sent), s.resource, reason)
	fault.Code, fault.status, fault.state = code, sent, StateReceivedError
	if !s.err.same(fault) {
		u.ch.client.warningf("a management server sent an error: %v", fault)
	}
	switch {
	case s.resource.memberOf != nil && code == codes.NotFound:
		u.removeMember(s, fault)
	case code == codes.NotFound, code == codes.PermissionDenied:
		u.dataError(s, fault)
	default:
		s.fail(fault, u.ch.delivery)
	}
}

// ignores reports whether a denial in the response does not count for a subscription.
func (u *update) ignores(s *subscription, sc *scope) bool {
	return u.ch.dialect.Locators && s.resource.memberOf == nil && u.types.ignoresDenial(s, u.number, !sc.all)
}

// doubts reports whether the removal of a member may be for another subscription to its name only. Then its collection is asked
// again, and the member, as one that the server has not sent, stays until the answer.
func (u *update) doubts(m *subscription, sc *scope) bool {
	if !u.ch.dialect.Locators || !sc.all {
		return false
	}
	whole := u.types.subs.get(m.resource.memberOf.key)
	return u.types.knew(whole, m.resource.key.name, anyConstraints) && whole.step(ads.DeniedForAnother) == ads.Ask
}

// scope is which subscriptions to a name a server means.
type scope struct {
	// all says that it means all of them; otherwise it means the subscription with the
	// constraints.
	all         bool
	constraints dynparam.Constraints
	// exact says that the constraints spell out parameters. For a member of a collection
	// the parameters name the variant that the server means. Constraints that spell
	// out no parameters are the collection's, and mean all variants of the member.
	exact      bool
	parameters dynparam.Parameters
}

// scopeOf returns which subscriptions a server means. A server that goes by names
// means all.
func (u *update) scopeOf(n wire.ResourceName) (scope, error) {
	if n.Err != nil {
		return scope{}, n.Err
	}
	if !n.Scoped || !u.ch.dialect.Locators {
		return scope{all: true}, nil
	}
	c, err := dynwire.UnmarshalConstraints(n.Constraints)
	if err != nil {
		return scope{}, err
	}
	sc := scope{constraints: c}
	sc.parameters, sc.exact = c.Parameters()
	return sc, nil
}

// covers reports whether the server means a subscription to a resource or a
// collection.
func (sc *scope) covers(s *subscription) bool {
	return sc.all || s.resource.key.variant == sc.constraints.Key()
}

// appendMembers appends the members of a name that the server means of a collection. removed says that it has no resource
// for the scope, and so no member that matches: the client may have taken one from a response for another subscription
// before the server knew of the collection.
func (sc *scope) appendMembers(found []*subscription, s *subscription, name string, removed bool) []*subscription {
	if sc.exact {
		if m := s.members.get(resourceKey{s.resource.key.typ, name, sc.parameters.Key()}); m != nil {
			found = append(found, m)
		}
		return found
	}
	for m := range s.members.first[name].siblings() {
		if sc.all || s.resource.key.variant == sc.constraints.Key() || removed && sc.constraints.Match(m.resource.parameters) {
			found = append(found, m)
		}
	}
	return found
}
