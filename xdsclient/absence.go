package xdsclient

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"

	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/xdsclient/internal/ads"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
)

// A server can say in four ways that it does not send a resource: by omitting it
// from the full state, by naming it as removed, by an error in its place, and by
// silence, which is the business of the resource timer.

// deleteOthers deletes what the server had and has no more, as the response with
// its full state shows. What it never had may just be later than the response
// (Envoy, xDS protocol, "Deleting Resources" and "Knowing When a Requested
// Resource Does Not Exist"), and of what no request has listed yet it knows nothing. In
// place of what it has an error for, it sends nothing (xRFC TP3, "Protocol Behavior").
func (u *update) deleteOthers() {
	for s := range u.types.subs.all() {
		if s.State == ads.Received && s.Seen != u.number && s.Listed() {
			u.delete(s, errDeleted)
		}
	}
}

var (
	errDeleted = errors.New("does not exist: the server deleted it")
	errMissing = errors.New("does not exist: the server does not have it")
)

// delete notes that the server does not have a resource (gRFC A88, "Handling Data
// Errors").
func (u *update) delete(s *subscription, reason error) {
	if u.unheard(s) {
		return
	}
	s.State = ads.Missing
	fault := u.fault(KindDoesNotExist, s.resource, reason)
	u.ch.client.infof("%v", fault)
	u.dataError(s, resourceMissing, fault)
}

// remove takes what the server says it has no resource for. One that says it of a
// subscription by its constraints may send another variant for it in the same
// response.
func (u *update) remove(n wire.ResourceName) {
	sc, err := u.scopeOf(n)
	if err != nil {
		u.refuseScope(n, fmt.Sprintf("removed_resource_names of %q", n.Name), err)
		return
	}
	u.findAbsent(n, &sc)
	u.findAbsentMembers(n, &sc, membersKnown)
	for _, s := range u.found {
		switch {
		case s.Seen == u.number && n.Scoped:
			continue
		case s.Seen == u.number:
			u.contradiction(s)
		case u.doubts(s, &sc):
			continue
		case s.resource.collection != nil:
			u.exit(s, resourceMissing, u.fault(KindDoesNotExist, s.resource, errLeft))
		case s.members != nil:
			u.empty(s)
		case s.payload != nil:
			u.delete(s, errDeleted)
		default:
			u.delete(s, errMissing)
		}
		s.Seen = u.number
	}
}

// findAbsent finds the subscriptions to what the server says something else of than
// what it is.
func (u *update) findAbsent(n wire.ResourceName, sc *scope) {
	u.found = u.found[:0]
	for s := range u.types.named(n.Name).siblings() {
		if u.types.Asked(s) && sc.covers(s) {
			u.found = append(u.found, s)
		}
	}
	if len(u.types.byOwn) > 0 {
		for _, s := range u.types.byOwn[xdsname.Canonical(string(n.Name))] {
			if u.types.Asked(s) && sc.covers(s) {
				u.found = append(u.found, s)
			}
		}
	}
}

// membersWanted says which members of collections findAbsentMembers is to find, beside
// those that the collections have.
type membersWanted int

const (
	// membersKnown: no others.
	membersKnown membersWanted = iota
	// membersDenied: no others, but their collections have an answer.
	membersDenied
	// membersFailed: others are made, and their collections have an answer.
	membersFailed
)

// findAbsentMembers adds the members of collections to what was found.
func (u *update) findAbsentMembers(n wire.ResourceName, sc *scope, wanted membersWanted) {
	first, name := u.types.collectionsOf(n.Name)
	for s := range first.siblings() {
		if !u.types.Asked(s) {
			continue
		}
		known := false
		for m := range s.members[name].siblings() {
			if sc.coversMember(m) {
				u.found, known = append(u.found, m), true
			}
		}
		meant := known || sc.all || sc.exact && s.resource.constraints.Match(sc.parameters)
		if !meant || wanted == membersKnown {
			continue
		}
		u.failing = append(u.failing, s)
		if known || wanted == membersDenied {
			continue
		}
		m, err := u.enter(newcomer{s, Member{name, sc.parameters}})
		if err != nil {
			u.blameError(fmt.Sprintf("%s %q", u.types.typ.Name, n.Name), err)
			continue
		}
		u.found = append(u.found, m)
	}
}

// contradiction notes that a response has a resource and says that it does not.
// The resource counts. What has an error may be named as removed as well, for
// clients that do not know of errors.
func (u *update) contradiction(s *subscription) {
	if s.State == ads.Failed {
		return
	}
	if u.contradictions++; u.contradictions == 1 {
		u.contradicted = s.resource.key.name
	}
}

// report takes an error that the server sent in place of a resource (xRFC TP3,
// "Protocol Behavior"; gRFC A88, "Support for Errors Provided by the xDS server").
func (u *update) report(e wire.ResourceError) {
	code, reason := e.Reason()
	sc, err := u.scopeOf(e.ResourceName)
	if err != nil {
		u.nameless++
		u.refuseScope(e.ResourceName, fmt.Sprintf("resource_errors[%d]", e.Index), err)
		return
	}
	u.findAbsent(e.ResourceName, &sc)
	failing := len(u.failing)
	// The error of the preferred variant is none of the others that match, which a
	// collection with the same constraints has.
	if len(u.found) == 0 || sc.all || sc.exact {
		wanted := membersFailed
		if code == codes.NotFound {
			wanted = membersDenied
		}
		u.findAbsentMembers(e.ResourceName, &sc, wanted)
	}
	if len(u.found) == 0 && len(u.failing) == failing {
		u.unasked++
		return
	}
	u.serverErrors++
	for _, s := range u.found {
		if s.Seen == u.number {
			u.contradiction(s)
			continue
		}
		if u.doubts(s, &sc) {
			continue
		}
		s.Seen = u.number
		u.failed(s, code, reason)
	}
	if code == codes.NotFound {
		for _, s := range u.failing[failing:] {
			u.lift(s.resource)
		}
	}
}

// answerFailing notes that errors for members are the server's answer for their
// collections (xRFC TP3, "Wildcard Subscriptions and Glob Collections"), unless it has an
// error for the collection as a whole, which stands until a resource or another error for
// it comes. If those who watch the collection follow another server, errors that are not
// final do not count, as with other resources.
func (u *update) answerFailing() {
	for _, s := range u.failing {
		failed := s.State == ads.Failed || s.State == ads.Dropped
		_, lifting := u.lifting[s.resource]
		if !failed && (lifting || !s.resource.aside()) {
			u.answer(s)
		}
	}
}

// unheard forgets all that the server said of a resource that has variants, in place of
// noting an error, if nobody watches it: the server has not been told so. Should a watch
// begin before it is, it is asked again: the client may have moved away from the variant and
// back, and the error be older than the latter.
func (u *update) unheard(s *subscription) bool {
	r := s.resource
	if !u.types.Dialect.Locators() || r.collection != nil || s.members != nil || len(r.watches) > 0 {
		return false
	}
	u.types.unindex(s)
	s.State, s.payload, s.taken, s.lastError = ads.Doubted, nil, stamp{}, nil
	r.state, r.payload, r.taken, r.fault = resourceRequested, nil, stamp{}, nil
	return true
}

// blameError notes a fault of an error that the server sent in place of a resource.
func (u *update) blameError(where string, err error) {
	u.total++
	u.invalid++
	u.faults.add(where, err)
}

// refuseScope notes that it cannot be told which subscriptions a server means.
func (u *update) refuseScope(n wire.ResourceName, where string, err error) {
	u.blameError(where, err)
	if errors.Is(err, errPublished) {
		u.refusePublished(n)
	}
}

// failed notes that the server sent an error in place of a resource.
func (u *update) failed(s *subscription, code codes.Code, reason error) {
	if u.unheard(s) {
		return
	}
	s.State = ads.Failed
	kind := KindServer
	if code == codes.NotFound {
		kind = KindDoesNotExist
	}
	fault := u.fault(kind, s.resource, reason)
	fault.Code = code
	if s.lastError == nil || !s.lastError.fault.same(fault) {
		u.ch.client.warningf("%v", fault)
	}
	switch {
	case s.resource.collection != nil && code == codes.NotFound:
		u.exit(s, resourceFailed, fault)
	case code == codes.NotFound, code == codes.PermissionDenied:
		u.dataError(s, resourceFailed, fault)
	default:
		u.ch.fail(s, lastError{resourceFailed, fault, false}, u.delivery)
	}
}

// doubts reports whether a denial in the response is not to be believed of a subscription.
func (u *update) doubts(s *subscription, sc *scope) bool {
	return sc.all && u.types.Dialect.Locators() && s.resource.collection == nil && u.types.Doubts(s, u.number)
}
