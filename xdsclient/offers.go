package xdsclient

import (
	"github.com/dynxds/dynxds/internal/dynwire"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
)

// From a server that is asked for variants (xRFC TP2) a response may have several
// resources of one name. Each is for every subscription to the name whose constraints its dynamic parameters satisfy. A subscription to
// a single resource takes the preferred one. So there are two passes over a response, that nothing is decoded, and
// no watcher called, without need: this one compares the offers to each subscription, and the second one (recipients.go) finds
// who takes a resource. A glob collection takes all variants that match, and has nothing to choose.

// offered is a variant that a response has under the name of a subscription.
type offered struct {
	// index is the place of the resource in the response.
	index      int
	parameters dynparam.Parameters
	// unreadable says that the parameters cannot be read. The resource may be for any
	// subscription to the name, and is for those that are offered nothing else.
	unreadable bool
}

// choice is the preferred one of the offers to a subscription. The zero value is that of no offers.
type choice struct {
	offered
	// made says that there was an offer.
	made bool
	// ambiguous says that xRFC TP2 does not decide between the offer and rival.
	ambiguous bool
	rival     dynparam.Parameters
}

// with returns the choice with one more offer. The order of the offers does not matter, but
// that of equal ones the first is chosen.
func (c choice) with(o offered, constraints dynparam.Constraints) choice {
	switch {
	case !o.unreadable && !constraints.Match(o.parameters):
		return c
	case !c.made || c.unreadable && !o.unreadable:
		return choice{offered: o, made: true}
	case o.unreadable:
		return c
	}
	both := [...]dynparam.Parameters{c.parameters, o.parameters}
	pick := constraints.Choose(both[:])
	if pick.Index == 1 {
		c.offered = o
		c.ambiguous = c.ambiguous && constraints.Choose([]dynparam.Parameters{c.parameters, c.rival}).Rival >= 0
	}
	if pick.Rival >= 0 && !c.ambiguous {
		c.rival, c.ambiguous = both[pick.Rival], true
	}
	return c
}

// offer is the offer of the last responses to a subscription to a single resource. Its numbers
// are numbers of responses.
type offer struct {
	// response is the last response that has a variant for the subscription, and choice its preferred
	// variant.
	response uint64
	choice   choice
	// retracted is the last response that removed the subscription's variant, and denied
	// the last response that has an error for this very subscription.
	retracted, denied uint64
	// asks says that the server is asked whether it still has the variant in use, and confirmed how often in a row it then had it.
	asks      bool
	confirmed int
}

// in returns the choice among the offers of a response.
func (o *offer) in(response uint64) choice {
	if o == nil || o.response != response {
		return choice{}
	}
	return o.choice
}

func (s *subscription) currentOffer() *offer {
	if s.offer == nil {
		s.offer = new(offer)
	}
	return s.offer
}

// compareOffers is the first pass over a response.
func (u *update) compareOffers() {
	if !u.ch.dialect.Locators {
		return
	}
	each(u.ch.client, u.resp.RemovedLocators, u.noteRetraction)
	each(u.ch.client, u.resp.Errors, u.noteDenial)
	each(u.ch.client, u.resp.Resources, u.offerResource)
}

// noteRetraction notes that the server has removed a subscription's variant. The subscription then takes
// any other variant of the response.
func (u *update) noteRetraction(n wire.ResourceName) {
	if sc, err := u.scopeOf(n); err == nil {
		u.eachMeant(n, &sc, func(o *offer) { o.retracted = u.number })
	}
}

// noteDenial notes that the server has an error for a subscription, by its constraints. Variants
// of the response for other subscriptions are not for it, even if they match.
func (u *update) noteDenial(e wire.ResourceError) {
	if sc, err := u.scopeOf(e.ResourceName); err == nil && !sc.all {
		u.eachMeant(e.ResourceName, &sc, func(o *offer) { o.denied = u.number })
	}
}

// eachMeant calls f for the subscriptions to single resources that a server means.
func (u *update) eachMeant(n wire.ResourceName, sc *scope, f func(*offer)) {
	for s := range u.types.subs.named(n.Name).siblings() {
		if !s.isCollection() && sc.covers(s) {
			f(s.currentOffer())
		}
	}
}

// offerResource offers a resource to the subscriptions to its name and its aliases.
func (u *update) offerResource(r wire.Resource) {
	if r = u.named(r); len(r.Name) == 0 {
		return
	}
	parameters, err := u.parameters.of(&r, u.types)
	o := offered{r.Index, parameters, err != nil}
	u.offerTo(u.types.subs.named(r.Name), o)
	if !r.HasAliases() {
		return
	}
	for alias := range r.Aliases() {
		u.offerTo(u.types.subs.named(alias), o)
	}
}

func (u *update) offerTo(first *subscription, o offered) {
	for s := range first.siblings() {
		if s.isCollection() {
			continue
		}
		chosen := s.offer.in(u.number).with(o, s.resource.constraints)
		if chosen.made && s.currentOffer().denied != u.number {
			s.offer.response, s.offer.choice = u.number, chosen
		}
	}
}

// parameterReader reads the dynamic parameters of the resources in a response. Parameters that the
// client has already, or has read, are not read again.
type parameterReader struct {
	memo map[string]dynparam.Parameters // by their bytes
}

// maxMemo bounds the parameters that a parameterReader remembers.
const maxMemo = 1024

func (pr *parameterReader) of(r *wire.Resource, ts *typeState) (dynparam.Parameters, error) {
	if len(r.Parameters) == 0 {
		return dynparam.Parameters{}, nil
	}
	for s := range ts.subs.named(r.Name).siblings() {
		if string(r.Parameters) == s.taken.parameters.Key() {
			return s.taken.parameters, nil
		}
	}
	if p, ok := pr.memo[string(r.Parameters)]; ok {
		return p, nil
	}
	p, err := dynwire.UnmarshalParameters(r.Parameters)
	if err == nil && len(pr.memo) < maxMemo {
		if pr.memo == nil {
			pr.memo = make(map[string]dynparam.Parameters)
		}
		pr.memo[string(r.Parameters)] = p
	}
	return p, err
}
