package xdsclient

import (
	"github.com/dynxds/dynxds/internal/dynwire"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
	"github.com/dynxds/dynxds/xdsclient/internal/choice"
)

// From a server that is asked for variants (xRFC TP2) a response may have several
// resources of one name. Package choice decides which subscription takes which of them;
// here it is given the offers, in a first pass over the response, and what the
// subscriptions have.

// offer is what the last responses have for a subscription to a single resource. All fields
// with a number are numbers of responses.
type offer struct {
	// response is the last one that has a variant for the subscription, and choice the
	// preferred one of it.
	response uint64
	choice   choice.Choice
	// retracted is the last one that says that what the subscription had is gone, and denied
	// the last one that has an error for this very subscription.
	retracted, denied uint64
	doubt             choice.Doubt
}

// in returns the choice among what a response offers.
func (o *offer) in(response uint64) choice.Choice {
	if o == nil || o.response != response {
		return choice.Choice{}
	}
	return o.choice
}

// weigh is the first pass over a response.
func (u *update) weigh() {
	if !u.types.locators {
		return
	}
	inBatches(u, u.resp.removedLocators, u.retract)
	inBatches(u, u.resp.errors, u.deny)
	inBatches(u, u.resp.resources, u.offer)
}

// retract notes that a subscription has lost what it had, and takes whatever else
// the response has for it.
func (u *update) retract(n wireName) {
	scope, err := u.scopeOf(n)
	if err != nil {
		return
	}
	for s := range u.types.named(n.name).siblings() {
		if s.resource.glob == nil && scope.covers(s) {
			s.currentOffer().retracted = u.number
		}
	}
}

// deny notes that the server has an error for a subscription, by its constraints. What
// the response has for others is not for it, even if it matches.
func (u *update) deny(e wireError) {
	scope, err := u.scopeOf(e.wireName)
	if err != nil || scope.all {
		return
	}
	for s := range u.types.named(e.name).siblings() {
		if s.resource.glob == nil && scope.covers(s) {
			s.currentOffer().denied = u.number
		}
	}
}

// offer notes what a resource is offered to.
func (u *update) offer(r wireResource) {
	if len(r.name) == 0 || u.published(&r) {
		return
	}
	parameters, err := u.parametersOf(&r)
	offered := choice.Offer{Index: r.index, Parameters: parameters, Unreadable: err != nil}
	u.offerTo(u.types.named(r.name), offered)
	if r.wrapper == nil {
		return
	}
	for alias := range r.aliases() {
		u.offerTo(u.types.named(alias), offered)
	}
}

func (u *update) offerTo(first *subscription, offered choice.Offer) {
	for s := range first.siblings() {
		if s.resource.glob != nil {
			continue
		}
		o := s.offer.in(u.number).With(offered, s.resource.constraints)
		if o.Made && s.currentOffer().denied != u.number {
			s.offer.response, s.offer.choice = u.number, o
		}
	}
}

func (s *subscription) currentOffer() *offer {
	if s.offer == nil {
		s.offer = new(offer)
	}
	return s.offer
}

// takes returns what becomes of a resource for a subscription to its name.
func (u *update) takes(s *subscription, it *item) choice.Outcome {
	if !u.types.locators || it.published {
		return choice.Taken
	}
	c := choice.Case{
		Offer:       it.offer(),
		Bare:        it.bare,
		Constraints: s.resource.constraints,
		Choice:      s.offer.in(u.number),
	}
	if o := s.offer; o != nil {
		c.Denied = o.denied == u.number
		complete := u.resp.fullState && u.types.typ.FullStateInSotW
		stands := s.state == subscriptionReceived || s.state == subscriptionDoubted
		if s.payload != nil && !complete && stands && o.retracted != u.number {
			c.Holds, c.Held = true, s.taken.parameters
		}
	}
	outcome := c.Outcome()
	switch outcome {
	case choice.Late:
		u.late = true
	case choice.Contested:
		if outcome, s.offer.doubt = s.offer.doubt.Settle(u.causeOf(s, it)); outcome == choice.Doubted {
			s.state = subscriptionDoubted
			u.types.touch(s)
		}
	}
	return outcome
}

// causeOf finds out about the others that a resource is for, beside a subscription.
func (u *update) causeOf(s *subscription, it *item) choice.Cause {
	found := u.causeAmong(u.types.named(it.name), s, it)
	if it.wrapper != nil {
		for alias := range it.aliases() {
			found = max(found, u.causeAmong(u.types.named(alias), s, it))
		}
	}
	return max(found, u.causeInCollections(it))
}

// causeAmong finds out about the subscriptions to a name.
func (u *update) causeAmong(first, s *subscription, it *item) choice.Cause {
	found := choice.NoCause
	for other := range first.siblings() {
		o := other.offer
		if other == s || !o.in(u.number).Made || o.choice.Index != it.index || !u.types.knows(other) {
			continue
		}
		found = max(found, u.causeFor(other, other, it))
	}
	return found
}

// causeInCollections finds out about the collections that have a resource.
func (u *update) causeInCollections(it *item) choice.Cause {
	found := choice.NoCause
	first, name := u.types.collectionsOf(it.name)
	for c := range first.siblings() {
		if !u.types.knows(c) || !c.resource.constraints.Match(it.parameters) {
			continue
		}
		m := c.resource.glob.sent.get(resourceKey{name: name, variant: it.parameters.Key()})
		if m == nil {
			found = max(found, choice.News)
			continue
		}
		found = max(found, u.causeFor(m, c, it))
	}
	return found
}

// causeFor finds out about one that a resource is for. asked is what the server was
// asked for: the subscription itself, or the collection of the member.
func (u *update) causeFor(other, asked *subscription, it *item) choice.Cause {
	switch {
	case asked.pending() && other.payload != nil:
		return choice.Answer
	case other.payload == nil, other.lastError != nil, !other.taken.parameters.Equal(it.parameters), other.known(it.value, u.ch.server) == nil:
		return choice.News
	default:
		return choice.NoCause
	}
}

// settleChoice reports an ambiguous choice when a subscription takes it.
func (u *update) settleChoice(s *subscription) {
	c := s.offer.in(u.number)
	if !c.Ambiguous {
		return
	}
	u.ambiguous++
	if !s.taken.parameters.Equal(c.Parameters) {
		u.ch.client.warningf("xDS management server %s sent several variants of %s %q for the constraints %v, %v and %v, between which xRFC TP2 does not decide; using %v. All variants of a resource should have the same keys, and the constraints choose one",
			u.ch.server, u.types.typ.Name, s.resource.key.name, s.resource.constraints, c.Parameters, c.Rival, c.Parameters)
	}
}

// maxMemo bounds the parameters that are remembered while a response is worked on.
const maxMemo = 1024

// parametersOf returns the dynamic parameters of a resource. Those that the client
// has already are not read again.
func (u *update) parametersOf(r *wireResource) (dynparam.Parameters, error) {
	if len(r.parameters) == 0 {
		return dynparam.Parameters{}, nil
	}
	for s := range u.types.named(r.name).siblings() {
		if string(r.parameters) == s.taken.parameters.Key() {
			return s.taken.parameters, nil
		}
	}
	if p, ok := u.memo[string(r.parameters)]; ok {
		return p, nil
	}
	p, err := dynwire.UnmarshalParameters(r.parameters)
	if err == nil && len(u.memo) < maxMemo {
		if u.memo == nil {
			u.memo = make(map[string]dynparam.Parameters)
		}
		u.memo[string(r.parameters)] = p
	}
	return p, err
}
