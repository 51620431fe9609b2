package xdsclient

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
	"github.com/dynxds/dynxds/xdsclient/internal/ads"
)

// Here the response is applied to the subscriptions, and through them to the cache.

// accept applies a valid resource to a subscription: p, or the version with the same bytes
// that the subscription has.
func (u *update) accept(s *subscription, it *item, p *payload) {
	if !u.once(s, it) {
		return
	}
	if p != s.payload {
		p = cmp.Or(s.known(it, u.ch.server), p)
	}
	if o := s.offer; o != nil {
		u.logAmbiguity(s)
		switch {
		case !s.taken.parameters.Equal(it.parameters):
			o.asks, o.confirmed = false, 0
		case o.asks && s.State.Pending():
			o.asks, o.confirmed = false, min(o.confirmed+1, maxConfirmed)
		}
	}
	u.received(s, it)
	s.accept(p, u.stampOf(s, it), u.ch.delivery)
	u.markUseful(s.resource)
}

// logAmbiguity reports an ambiguous choice when a subscription takes it.
func (u *update) logAmbiguity(s *subscription) {
	c := s.offer.in(u.number)
	if !c.ambiguous {
		return
	}
	u.ambiguous++
	if !s.taken.parameters.Equal(c.parameters) {
		u.ch.client.warningf("xDS management server %s sent several variants of %s %q for the constraints %v, %v and %v, between which xRFC TP2 does not decide; using %v. All variants of a resource should have the same keys, and the constraints choose one",
			u.ch.server, u.types.typ.Name, s.resource.key.name, s.resource.constraints, c.parameters, c.rival, c.parameters)
	}
}

// heartbeat notes that the server still has a version. If that is not the version
// that the client has from it, there is nothing to do: the server does not send it.
func (u *update) heartbeat(it *item) {
	u.unchanged++
	for _, s := range u.found {
		if s.payload == nil && s.State.Pending() {
			continue // no answer: the server may not have read yet that the client dropped the resource, and asks for it again
		}
		if u.once(s, it) && s.payload != nil && s.taken.version == string(it.Version) && s.taken.parameters.Equal(it.parameters) {
			p := s.payload
			if renew := u.types.typ.Renew; renew != nil {
				p = &payload{p.raw, p.enveloped, renew(p.value, it.TTL), p.server}
			}
			u.received(s, it)
			s.accept(p, u.stampOf(s, it), u.ch.delivery)
			u.markUseful(s.resource)
		}
	}
}

// stampOf returns the mark of a resource that the response has: with its own version
// if the server gives it one.
func (u *update) stampOf(s *subscription, it *item) stamp {
	st := u.stamp
	st.parameters = it.parameters
	// A DPDS resource is "always non-cacheable", even if the server forgets to say so (xRFC TP2,
	// "Non-Cacheability of DPDS").
	st.volatile = it.TTL > 0 || it.DoNotCache || it.Heartbeat && s.taken.volatile || u.types.typ.TypeURL == dynparam.MapTypeURL
	if u.types.typ.Renew != nil {
		st.ttl = it.TTL
		u.timed = u.timed || it.TTL > 0
	}
	switch {
	case !u.ch.dialect.Incremental && len(it.Version) == 0:
	case s.taken.version == string(it.Version):
		st.version = s.taken.version
	default:
		st.version = string(it.Version)
	}
	return st
}

// once notes that the response has a resource, and rejects the second one of a name
// (Envoy, xDS protocol, "Duplicate Resource Names"). The first one counts.
func (u *update) once(s *subscription, it *item) bool {
	if s.seen == u.number {
		s.step(ads.Sent)
		u.reject(s, it, errors.New("the response has more than one resource of this name"))
		return false
	}
	s.seen = u.number
	return true
}

// received notes that the server has the resource. A member is an answer for its collection,
// unless it is faulty and the authority follows another server: like
// any faulty resource, it does not bring it back to this one.
func (u *update) received(s *subscription, it *item) {
	u.types.noteRead(s, it.parameters, u.collected(it))
	s.step(ads.Sent)
	switch c := s.resource.memberOf; {
	case c == nil:
		if len(it.Name) > 0 && (s.canonical != "" || s.resource.key.name != string(it.Name)) {
			u.types.setCanonicalName(s, xdsname.Canonical(string(it.Name)))
		}
	case it.Err == nil || !u.ch.standsBy(c):
		u.answerCollection(u.types.subs.get(c.key))
	}
}

// where names the resource of an error.
func (u *update) where(it *item) string {
	return fmt.Sprintf("%s %q", u.types.typ.Name, faults.Shorten(string(it.Name), bounds.ErrorText))
}

// blame notes an error of a resource.
func (u *update) blame(it *item, where string, err error) {
	u.faults.add(where, err)
	if !it.invalid { // one that goes by several names counts once
		it.invalid = true
		u.invalid++
	}
}

// reject notes that a resource is invalid.
func (u *update) reject(s *subscription, it *item, err error) {
	where := fmt.Sprintf("%s %q", u.types.typ.Name, s.resource.key.name)
	if u.ch.dialect.Locators && !it.parameters.IsZero() {
		where += " " + it.parameters.String()
	}
	err = bounds.Error(err, bounds.FaultText) // it is kept
	u.blame(it, where, err)
	u.dataError(s, u.fault(KindInvalid, s.resource, err))
}

// dataError notes that the last answer of the server for a resource is an error in the
// data. The last valid version stays in use, unless the server has fail_on_data_errors
// (gRFC A88, "Handling Data Errors").
func (u *update) dataError(s *subscription, fault *Error) {
	fault.withdraws = u.ch.server.HasFeature(bootstrap.FeatureFailOnDataErrors)
	s.fail(fault, u.ch.delivery)
	if fault.final() {
		u.markUseful(s.resource)
	}
}

// markUseful notes that the response is of use to an authority that follows a server below. It follows
// this server once all of the response is applied.
func (u *update) markUseful(r *resource) {
	if !u.ch.standsBy(r) {
		return
	}
	if u.useful == nil {
		u.useful = make(map[*authority]struct{})
	}
	u.useful[r.authority] = struct{}{}
}

// fault makes an Error that the response caused.
func (u *update) fault(kind ErrorKind, r *resource, err error) *Error {
	fault := u.ch.fault(kind, r, err)
	fault.stamp = u.stamp
	return fault
}

// collected reports whether a resource may be in a response for a collection.
func (u *update) collected(it *item) bool {
	if d := u.ch.dialect; !d.Incremental || !d.Locators {
		return false
	}
	first, _ := u.types.collectionsOf(it.Name)
	for s := range first.siblings() {
		if u.types.asked(s) && s.resource.constraints.Match(it.parameters) {
			return true
		}
	}
	return u.types.unsubscriptions > 0 && u.types.gaveUp(collectionOf(it.Name), it.parameters)
}

// answerCollection notes that the server answered for a collection. The collection as a whole is
// reported at the end, as more of its members may come.
func (u *update) answerCollection(s *subscription) {
	if s.seen == u.number {
		return
	}
	s.seen = u.number
	if u.size < bounds.ResponsePart || !s.State.Pending() {
		s.step(ads.Sent)
	}
	u.answered = append(u.answered, s)
}

// answerEmpty takes an empty response for the answer to a wildcard without members: Envoy waits for such a response, so
// servers send one. To a client that has claimed members an empty response says that all of them are still there. One that
// may have crossed the request for the wildcard says nothing of the wildcard.
func (u *update) answerEmpty() {
	ts := u.types
	if ts.collections == 0 || !ts.channel.dialect.Incremental || u.resp.HasAnswers() || u.resp.HasErrors() {
		return
	}
	for s := range ts.subs.first[wildcard].siblings() {
		if s.payload == nil && s.members.size == 0 && ts.hasRead(s) && !u.ch.standsBy(s.resource) {
			u.answerCollection(s)
		}
	}
}

// reportAnswered reports the collections that the response answered for, without the members that it
// does not have.
func (u *update) reportAnswered() {
	for _, s := range u.answered {
		if s.State == ads.Ended {
			continue
		}
		s.accept(cmp.Or(s.payload, &payload{server: u.ch.server}), u.stamp, u.ch.delivery)
		s.cullMembers(u.ch.delivery)
	}
}

// accept notes that the server sent a valid version, even if it is the one in use.
func (s *subscription) accept(p *payload, taken stamp, d *delivery) {
	ch := s.types.channel
	s.lastAnswer = lastAnswer{p.from(ch.server), taken, nil}
	if ch.serves(s.resource) {
		s.admit()
		s.resource.accept(s.payload, taken, d)
	}
}

// fail notes that the last answer of the server is an error.
func (s *subscription) fail(err *Error, d *delivery) {
	s.note(err)
	if err.withdraws {
		s.dropMembers()
	}
	if !s.types.channel.serves(s.resource) {
		return
	}
	s.admit()
	if err.withdraws {
		s.resource.disband(err, d)
	}
	s.resource.fail(err, d)
}
