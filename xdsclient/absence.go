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

// absence is the last pass over a response, through its errors and removals. A
// server can say in four ways that it does not send a resource: by an error in its place, by
// naming it as removed, by omitting it from the full state, and by silence, which is the
// business of the resource timer.
type absence struct {
	*update
	// found are the subscriptions that the server means. They are valid until the next name.
	found []*subscription
	// failing are the collections for whose members the response has errors.
	failing []*subscription
	// contradicted is the first resource that the response has and says to be absent, and
	// contradictions how many there are.
	contradicted   string
	contradictions int
}

var (
	errDeleted = errors.New("does not exist: the server deleted it")
	errMissing = errors.New("does not exist: the server does not have it")
)

// applyAbsence applies the errors and the names of removed resources.
func (u *update) applyAbsence() *absence {
	a := &absence{update: u}
	inBatches(u, u.resp.Errors, a.applyError)
	inBatches(u, u.resp.Removed, a.applyRemoval)
	if u.types.Dialect.Locators() {
		inBatches(u, u.resp.RemovedLocators, a.applyRemoval)
	}
	return a
}

// finish applies the omissions of the response.
func (a *absence) finish() {
	if a.resp.FullState && a.types.typ.FullStateInSotW && a.nameless == 0 {
		a.deleteOmitted()
	}
	a.answerFailing()
}

// deleteOmitted deletes the resources that the server has sent and that the response with its
// full state omits. A resource that it has not sent may come later (Envoy, xDS
// protocol, "Deleting Resources" and "Knowing When a Requested Resource Does Not Exist"), one
// that no request has listed yet is unknown to it, and an error is not repeated (xRFC TP3,
// "Protocol Behavior").
func (a *absence) deleteOmitted() {
	for s := range a.types.subs.all() {
		// After a timer that said nothing this is the first answer, unless there is nothing and nobody was told.
		late := s.State == ads.Silent
		untold := late && s.payload == nil && !a.ch.inherits(s) && s.err == nil
		if s.Seen == a.number || !s.Listed() || untold || a.types.Omit(s) != ads.Tell {
			continue
		}
		if late && s.payload == nil && !s.resource.taken.stored {
			a.delete(s, errMissing)
		} else {
			a.delete(s, errDeleted)
		}
	}
}

// delete notes that the server does not have a resource (gRFC A88, "Handling Data
// Errors").
func (a *absence) delete(s *subscription, reason error) {
	if a.forgetUnwatched(s) {
		return
	}
	a.types.Step(s, ads.Denied)
	fault := a.fault(KindDoesNotExist, s.resource, reason)
	a.ch.client.infof("a management server deleted a resource: %v", fault)
	a.dataError(s, fault)
}

// applyRemoval applies that the server has no resource of a name. If the name comes with the
// constraints of a subscription, the same response may have another variant for it.
func (a *absence) applyRemoval(n wire.ResourceName) {
	sc, err := a.scopeOf(n)
	if err != nil {
		a.blameError(fmt.Sprintf("removed_resource_names of %q", n.Name), err)
		return
	}
	a.findMeant(n, &sc)
	a.findMembers(n, &sc, false, false)
	for _, s := range a.found {
		switch {
		case s.Seen == a.number && n.Scoped:
			continue
		case s.Seen == a.number:
			a.noteContradiction(s)
		case a.ignores(s, &sc):
			continue
		case s.resource.memberOf != nil:
			a.removeMember(s, a.fault(KindDoesNotExist, s.resource, errLeft))
		case s.IsCollection():
			a.emptyCollection(s)
		case s.payload != nil:
			a.delete(s, errDeleted)
		default:
			a.delete(s, errMissing)
		}
		s.Seen = a.number
	}
}

// findMeant finds the subscriptions that a server means by a name and a scope.
func (a *absence) findMeant(n wire.ResourceName, sc *scope) {
	a.found = a.found[:0]
	add := func(s *subscription) {
		if a.types.Asked(s) && sc.covers(s) {
			a.found = append(a.found, s)
		}
	}
	for s := range a.types.named(n.Name).siblings() {
		add(s)
	}
	if len(a.types.byCanonicalName) > 0 {
		for _, s := range a.types.byCanonicalName[xdsname.Canonical(string(n.Name))] {
			add(s)
		}
	}
}

// findMembers adds members of collections to a.found. answers says that the error or removal is an
// answer for their collections, and enter that unknown members are added to their collections.
func (a *absence) findMembers(n wire.ResourceName, sc *scope, answers, enter bool) {
	first, name := a.types.collectionsOf(n.Name)
	for s := range first.siblings() {
		if !a.types.Asked(s) {
			continue
		}
		before := len(a.found)
		a.found = sc.appendMembers(a.found, s, name, !answers)
		known := len(a.found) > before
		meant := known || sc.all || sc.exact && s.resource.constraints.Match(sc.parameters)
		if !meant || !answers {
			continue
		}
		a.failing = append(a.failing, s)
		if known || !enter {
			continue
		}
		m, err := s.enter(Member{name, sc.parameters})
		if err != nil {
			a.blameError(fmt.Sprintf("%s %q", a.types.typ.Name, n.Name), err)
			continue
		}
		a.found = append(a.found, m)
	}
}

// removeMember notes that the server no longer has a member.
func (a *absence) removeMember(m *subscription, fault *Error) {
	whole := m.resource.memberOf
	a.types.dropMember(m)
	if a.ch.standsBy(whole) {
		whole.authority.moveUpTo(a.ch)
	}
	if r := whole.members[m.resource.key]; r != nil && a.ch.serves(whole) {
		whole.expel(r, fault, a.delivery)
	}
}

// emptyCollection notes that a collection has no members.
func (a *absence) emptyCollection(s *subscription) {
	for m := range s.members.all() {
		a.removeMember(m, a.fault(KindDoesNotExist, m.resource, errLeft))
	}
	a.answerCollection(s)
	a.markUseful(s.resource)
}

// noteContradiction notes that a response has a resource and says that it does not.
// The resource counts. A resource with an error may be named as removed as well, for
// clients that do not know of errors.
func (a *absence) noteContradiction(s *subscription) {
	if s.State == ads.Failed {
		return
	}
	if a.contradictions++; a.contradictions == 1 {
		a.contradicted = s.resource.key.name
	}
}

func (a *absence) logContradictions() {
	if a.contradictions > 0 {
		a.ch.client.warningf("xDS management server %s sent %d %s resources and said in the same response that it does not, first %q; the resources count",
			a.ch.server, a.contradictions, a.types.typ.Name, a.contradicted)
	}
}

// applyError applies an error that the server sent in place of a resource (xRFC TP3,
// "Protocol Behavior"; gRFC A88, "Support for Errors Provided by the xDS server").
func (a *absence) applyError(e wire.ResourceError) {
	code, reason := e.Reason()
	sc, err := a.scopeOf(e.ResourceName)
	if err != nil {
		a.nameless++
		a.blameError(fmt.Sprintf("resource_errors[%d]", e.Index), err)
		return
	}
	a.findMeant(e.ResourceName, &sc)
	failing := len(a.failing)
	// An error for the preferred variant is none for the others that match and that a
	// collection with the same constraints has.
	if len(a.found) == 0 || sc.all || sc.exact {
		a.findMembers(e.ResourceName, &sc, true, code != codes.NotFound)
	}
	if len(a.found) == 0 && len(a.failing) == failing {
		a.unasked++
		return
	}
	a.serverErrors++
	for _, s := range a.found {
		if s.Seen == a.number {
			a.noteContradiction(s)
			continue
		}
		if a.ignores(s, &sc) {
			continue
		}
		s.Seen = a.number
		a.noteError(s, code, reason, e.Status())
	}
	if code == codes.NotFound {
		for _, s := range a.failing[failing:] {
			a.markUseful(s.resource)
		}
	}
}

// answerFailing notes that errors for members are the server's answer for their
// collections (xRFC TP3, "Wildcard Subscriptions and Glob Collections"), unless it has an
// error for the collection as a whole, which stands until a resource or another error for
// it comes. If the authority follows another server, errors that are not
// final do not count, as with other resources.
func (a *absence) answerFailing() {
	for _, s := range a.failing {
		failed := s.State == ads.Failed || s.State == ads.Ended
		_, useful := a.useful[s.resource.authority]
		if !failed && (useful || !a.ch.standsBy(s.resource)) {
			a.answerCollection(s)
		}
	}
}

// forgetUnwatched forgets the answers for a resource, in place of noting an error, if it is no longer watched, and
// reports whether that is so. The server has not been asked yet to stop sending it. A watch that begins before that
// asks again: the error may be older than the watch, and the resource be there by now.
func (a *absence) forgetUnwatched(s *subscription) bool {
	r := s.resource
	if r.memberOf != nil || r.isCollection() || s.wanted {
		return false
	}
	a.types.Step(s, ads.DeniedUnwatched)
	s.lastAnswer = lastAnswer{}
	if !r.watched() {
		r.lastAnswer = lastAnswer{}
	}
	return true
}

// blameError notes a fault of an error that the server sent in place of a resource.
func (a *absence) blameError(where string, err error) {
	a.total++
	a.invalid++
	a.faults.add(where, err)
}

// noteError notes that the server sent an error in place of a resource.
func (a *absence) noteError(s *subscription, code codes.Code, reason error, sent []byte) {
	if a.forgetUnwatched(s) {
		return
	}
	a.types.Step(s, ads.Errored)
	fault := a.fault(kindOf(code, sent), s.resource, reason)
	fault.Code, fault.status, fault.state = code, sent, StateReceivedError
	if !s.err.same(fault) {
		a.ch.client.warningf("a management server sent an error: %v", fault)
	}
	switch {
	case s.resource.memberOf != nil && code == codes.NotFound:
		a.removeMember(s, fault)
	case code == codes.NotFound, code == codes.PermissionDenied:
		a.dataError(s, fault)
	default:
		a.ch.failResource(s, fault, a.delivery)
	}
}

// ignores reports whether a denial in the response does not count for a subscription.
func (a *absence) ignores(s *subscription, sc *scope) bool {
	return a.types.Dialect.Locators() && s.resource.memberOf == nil && a.types.IgnoresDenial(s, a.number, !sc.all)
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
	if !n.Scoped || !u.types.Dialect.Locators() {
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
