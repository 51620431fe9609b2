package xdsclient

import (
	"github.com/dynxds/dynxds/internal/dynwire"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
	"github.com/dynxds/dynxds/xdsclient/internal/ads"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
)

// From a server that is asked for variants (xRFC TP2) a response may have several
// resources of one name. A resource is for every subscription to its name whose
// constraints its dynamic parameters satisfy, and for all collections that it is a
// member of and whose constraints they satisfy. A subscription to a single resource
// takes one: of those that the response has for it the preferred one.
//
// Which one that is, is found before any is worked on, in a first pass over the
// response, so that nothing is decoded, and no watcher told, for nothing.

// offer is what a response has for a subscription to a single resource.
type offer struct {
	// response is the number of the response.
	response uint64
	// index is the place of the resource in the response, and parameters are its
	// own. unreadable says that these cannot be read: it may be for the
	// subscription, and is if there is nothing else.
	index      int
	parameters dynparam.Parameters
	unreadable bool
	// rival is another variant that would do as well, if open is set.
	rival dynparam.Parameters
	open  bool
	// retracted is the number of the last response that says that what the
	// subscription had is gone, and denied that of the last one that has an error for
	// this very subscription.
	retracted, denied uint64
	// doubted says that the server is asked again, because what the subscription has
	// may be gone, and refuted how often in a row it then was not.
	doubted bool
	refuted int
}

// maxRefuted bounds how often in a row answers to questions about others are reason
// enough to ask again. A server that answers each question by itself could be asked for
// ever by two subscriptions that match what the other one prefers.
const maxRefuted = 4

// weigh is the first pass over a response.
func (u *update) weigh() {
	if !u.types.Dialect.Locators() {
		return
	}
	inBatches(u, u.resp.RemovedLocators, u.retract)
	inBatches(u, u.resp.Errors, u.deny)
	inBatches(u, u.resp.Resources, u.offer)
}

// retract notes that a subscription has lost what it had, and takes whatever else
// the response has for it.
func (u *update) retract(n wire.ResourceName) {
	scope, err := u.scopeOf(n)
	if err != nil {
		return
	}
	for s := range u.types.named(n.Name).siblings() {
		if s.members == nil && scope.covers(s) {
			s.currentOffer().retracted = u.number
		}
	}
}

// deny notes that the server has an error for a subscription, by its constraints. What
// the response has for others is not for it, even if it matches.
func (u *update) deny(e wire.ResourceError) {
	scope, err := u.scopeOf(e.ResourceName)
	if err != nil || scope.all {
		return
	}
	for s := range u.types.named(e.Name).siblings() {
		if s.members == nil && scope.covers(s) {
			s.currentOffer().denied = u.number
		}
	}
}

// offer notes what a resource is offered to.
func (u *update) offer(r wire.Resource) {
	if len(r.Name) == 0 || u.published(&r) {
		return
	}
	parameters, err := u.parametersOf(&r)
	u.offerTo(u.types.named(r.Name), &r, parameters, err != nil)
	if !r.HasAliases() {
		return
	}
	for alias := range r.Aliases() {
		u.offerTo(u.types.named(alias), &r, parameters, err != nil)
	}
}

func (u *update) offerTo(first *subscription, r *wire.Resource, parameters dynparam.Parameters, unreadable bool) {
	for s := range first.siblings() {
		if s.members != nil || !unreadable && !s.resource.constraints.Match(parameters) {
			continue
		}
		switch o := s.currentOffer(); u.number {
		case o.denied:
		case o.response:
			o.contest(s.resource.constraints, r.Index, parameters, unreadable)
		default:
			*o = offer{response: u.number, index: r.Index, parameters: parameters, unreadable: unreadable, retracted: o.retracted, doubted: o.doubted, refuted: o.refuted}
		}
	}
}

func (s *subscription) currentOffer() *offer {
	if s.offer == nil {
		s.offer = new(offer)
	}
	return s.offer
}

// contest compares the offer with another one of the same response. Of equal ones
// the first stays.
func (o *offer) contest(c dynparam.Constraints, index int, parameters dynparam.Parameters, unreadable bool) {
	switch {
	case unreadable:
		return
	case o.unreadable:
		o.index, o.parameters, o.unreadable = index, parameters, false
		return
	}
	order, decided := c.Compare(parameters, o.parameters)
	loser := parameters
	if order > 0 {
		loser, o.index, o.parameters = o.parameters, index, parameters
	}
	if o.open && order > 0 {
		_, settled := c.Compare(o.parameters, o.rival)
		o.open = !settled
	}
	if order != 0 && !decided && !o.open {
		o.rival, o.open = loser, true
	}
}

// takes reports whether a subscription takes a resource, and, if not, whether it is
// only because of a better one.
func (u *update) takes(s *subscription, it *item) (takes, outranked bool) {
	if !u.types.Dialect.Locators() || it.published {
		return true, false
	}
	o := s.offer
	offered := o != nil && o.response == u.number
	switch {
	case o != nil && o.denied == u.number:
		return false, it.unreadable || s.resource.constraints.Match(it.parameters)
	case it.bare:
		matches := s.resource.constraints.Match(it.parameters)
		return matches && !offered, matches && offered
	case !offered:
		// It was not there at the first pass: this response is not its answer.
		u.late = u.late || s.resource.constraints.Match(it.parameters)
		return false, false
	case it.unreadable:
		return o.index == it.Index, false
	case !o.unreadable && o.parameters.Equal(it.parameters):
		// A second one with the same parameters is found by update.once.
		return u.prefers(s, o, it), true
	default:
		return false, s.resource.constraints.Match(it.parameters)
	}
}

// prefers reports whether a subscription takes what the response offers over what it
// has.
//
// A response with the full state has all there is. One with changes has what is news
// for some subscription, and this one, which has a preferred variant, may only match
// it as well. If the resource is there for no other subscription to the name, the
// server has sent it because of this one, and the preferred variant is gone. If it is
// news to another one, that may be so or not: the server is asked again, and what it
// says then counts. So it is if it may be the answer to such a question about another
// one, but only until maxRefuted.
func (u *update) prefers(s *subscription, o *offer, it *item) bool {
	complete := u.resp.FullState && u.types.typ.FullStateInSotW
	stands := s.State == ads.Received || s.State == ads.Doubted
	if complete || !stands || o.retracted == u.number || !s.outranks(o) {
		return true
	}
	switch u.causeOf(s, it) {
	case causeNone:
		return true
	case causeAnswer:
		if o.refuted == maxRefuted {
			return false
		}
	}
	o.doubted = true
	s.State = ads.Doubted
	u.types.Touch(s)
	return false
}

// judge takes what the server sends, in place of taken, for the answer to a doubt.
func (s *subscription) judge(parameters dynparam.Parameters) {
	if s.offer == nil {
		return
	}
	switch same := s.taken.parameters.Equal(parameters); {
	case !same:
		s.offer.doubted, s.offer.refuted = false, 0
	case s.Pending() && s.offer.doubted:
		s.offer.doubted = false
		s.offer.refuted = min(s.offer.refuted+1, maxRefuted)
	}
}

// outranks reports whether the subscription has a variant that it prefers to an
// offer.
func (s *subscription) outranks(o *offer) bool {
	if s.payload == nil || s.taken.parameters.Equal(o.parameters) {
		return false
	}
	order, _ := s.resource.constraints.Compare(o.parameters, s.taken.parameters)
	return order < 0
}

// cause says why a resource that is offered to one subscription may be in the response
// for another one, from the weakest reason to the strongest.
type cause int

const (
	causeNone cause = iota
	// causeNews: it is not what the other one has.
	causeNews
	// causeAnswer: the server was asked again for the other one.
	causeAnswer
)

// causeOf finds out about the others that a resource is for, beside a subscription.
func (u *update) causeOf(s *subscription, it *item) cause {
	found := u.causeAmong(u.types.named(it.Name), s, it)
	if it.HasAliases() {
		for alias := range it.Aliases() {
			found = max(found, u.causeAmong(u.types.named(alias), s, it))
		}
	}
	return max(found, u.causeInCollections(it))
}

// causeAmong finds out about the subscriptions to a name.
func (u *update) causeAmong(first, s *subscription, it *item) cause {
	found := causeNone
	for other := range first.siblings() {
		o := other.offer
		if other == s || o == nil || o.response != u.number || o.index != it.Index || !u.types.Asked(other) {
			continue
		}
		found = max(found, u.causeFor(other, other, it))
	}
	return found
}

// causeInCollections finds out about the collections that have a resource.
func (u *update) causeInCollections(it *item) cause {
	found := causeNone
	first, name := u.types.collectionsOf(it.Name)
	for c := range first.siblings() {
		if !u.types.Asked(c) || !c.resource.constraints.Match(it.parameters) {
			continue
		}
		m := c.members.get(resourceKey{name: name, variant: it.parameters.Key()})
		if m == nil {
			found = max(found, causeNews)
			continue
		}
		found = max(found, u.causeFor(m, c, it))
	}
	return found
}

// causeFor finds out about one that a resource is for. asked is what the server was
// asked for: the subscription itself, or the collection of the member.
func (u *update) causeFor(other, asked *subscription, it *item) cause {
	switch {
	case asked.Pending() && other.payload != nil:
		return causeAnswer
	case other.payload == nil, other.lastError != nil, !other.taken.parameters.Equal(it.parameters), other.known(it.Value, u.ch.server) == nil:
		return causeNews
	default:
		return causeNone
	}
}

// settleChoice reports an ambiguous choice when a subscription takes it.
func (u *update) settleChoice(s *subscription) {
	o := s.offer
	if o == nil || o.response != u.number || !o.open {
		return
	}
	u.ambiguous++
	if !s.taken.parameters.Equal(o.parameters) {
		u.ch.client.warningf("xDS management server %s sent several variants of %s %q for the constraints %v, %v and %v, between which xRFC TP2 does not decide; using %v. All variants of a resource should have the same keys, and the constraints choose one",
			u.ch.server, u.types.typ.Name, s.resource.key.name, s.resource.constraints, o.parameters, o.rival, o.parameters)
	}
}

// maxMemo bounds the parameters that are remembered while a response is worked on.
const maxMemo = 1024

// parametersOf returns the dynamic parameters of a resource. Those that the client
// has already are not read again.
func (u *update) parametersOf(r *wire.Resource) (dynparam.Parameters, error) {
	if len(r.Parameters) == 0 {
		return dynparam.Parameters{}, nil
	}
	for s := range u.types.named(r.Name).siblings() {
		if string(r.Parameters) == s.taken.parameters.Key() {
			return s.taken.parameters, nil
		}
	}
	if p, ok := u.memo[string(r.Parameters)]; ok {
		return p, nil
	}
	p, err := dynwire.UnmarshalParameters(r.Parameters)
	if err == nil && len(u.memo) < maxMemo {
		if u.memo == nil {
			u.memo = make(map[string]dynparam.Parameters)
		}
		u.memo[string(r.Parameters)] = p
	}
	return p, err
}
