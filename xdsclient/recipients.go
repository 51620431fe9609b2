package xdsclient

import (
	"github.com/dynxds/dynxds/xdsclient/internal/ads"
	"github.com/dynxds/dynxds/xdsclient/internal/choice"
)

// recipients are the subscriptions that a resource of a response is for. They are valid until the next
// resource.
type recipients struct {
	*update
	// found are the subscriptions, members of collections among them, and entering the members
	// that collections do not have yet.
	found    []*subscription
	entering []newcomer
	// outranked says that the resource matches a subscription that takes a better one.
	outranked bool
}

// find finds the recipients of a resource: the subscriptions to its own name and to its aliases,
// and the members of collections.
func (to *recipients) find(it *item) {
	to.found, to.entering, to.outranked = to.found[:0], to.entering[:0], false
	to.ch.finds++
	to.addSubscriptions(to.types.named(it.Name), it)
	if it.HasAliases() {
		for alias := range it.Aliases() {
			to.addSubscriptions(to.types.named(alias), it)
		}
	}
	to.addMembers(it)
}

// none reports whether the resource is for no subscription.
func (to *recipients) none() bool { return len(to.found) == 0 && len(to.entering) == 0 }

// addSubscriptions adds the subscriptions to a name that take the resource. Each is added once.
func (to *recipients) addSubscriptions(first *subscription, it *item) {
	for s := range first.siblings() {
		if s.IsCollection() || s.found == to.ch.finds || !to.types.Asked(s) {
			continue
		}
		s.found = to.ch.finds
		outcome := to.outcomeFor(s, it)
		if outcome == choice.Taken {
			to.found = append(to.found, s)
		}
		to.outranked = to.outranked || outcome.Passed()
	}
}

// addMembers adds the members that the resource is. Collections take all variants that match.
func (to *recipients) addMembers(it *item) {
	if it.unreadable {
		return
	}
	first, name := to.types.collectionsOf(it.Name)
	for s := range first.siblings() {
		if !to.types.Asked(s) || !s.resource.constraints.Match(it.parameters) {
			continue
		}
		if m := s.collection.sentMember(resourceKey{typ: to.types.typ, name: name, variant: it.parameters.Key()}); m != nil {
			to.found = append(to.found, m)
		} else {
			to.entering = append(to.entering, newcomer{s.collection, Member{name, it.parameters}})
		}
	}
}

// enterMembers adds to the collections the members that they do not have yet.
func (to *recipients) enterMembers(it *item) {
	for _, n := range to.entering {
		m, err := n.enter()
		if err != nil {
			to.blame(it, to.where(it), err)
			continue
		}
		to.found = append(to.found, m)
	}
	to.entering = to.entering[:0]
}

// knownVersion returns the decoded value of a resource's very bytes that one of the recipients has,
// or nil.
func (to *recipients) knownVersion(it *item) *payload {
	for _, s := range to.found {
		if p := s.known(it, to.ch.server); p != nil {
			return p
		}
	}
	for _, n := range to.entering {
		if p := n.known(it, to.ch.server); p != nil {
			return p
		}
	}
	return nil
}

// asked reports whether something of this name is subscribed to.
func (u *update) asked(name []byte) bool {
	if u.types.named(name) != nil {
		return true
	}
	first, _ := u.types.collectionsOf(name)
	return first != nil
}

// outcomeFor returns what becomes of a resource for a subscription to its name.
func (to *recipients) outcomeFor(s *subscription, it *item) choice.Outcome {
	if !to.types.Dialect.Locators() {
		return choice.Taken
	}
	c := choice.Case{
		Offer:       it.offer(),
		Constraints: s.resource.constraints,
		Choice:      s.offer.in(to.number),
	}
	if o := s.offer; o != nil {
		c.Denied = o.denied == to.number
		complete := to.resp.FullState && to.types.typ.FullStateInSotW
		stands := s.State == ads.Received || s.State == ads.Reask || s.State.Pending() && !o.question.Open
		if s.payload != nil && !complete && stands && o.retracted != to.number {
			c.Holds, c.Held = true, s.taken.parameters
		}
	}
	outcome := c.Outcome()
	switch outcome {
	case choice.Late:
		to.late = true
	case choice.Contested:
		if !to.types.MayBeForAnother(s, it.parameters) && !to.collected(it) {
			return choice.Taken
		}
		if outcome, s.offer.question = s.offer.question.Settle(to.answersAnother(s, it)); outcome == choice.KeptAsking {
			to.types.Step(s, ads.Contested)
		}
	}
	return outcome
}

// answersAnother reports whether a resource may be the answer to the question whether another subscription
// still has the variant that it prefers.
func (to *recipients) answersAnother(s *subscription, it *item) bool {
	if to.answersAmong(to.types.named(it.Name), s, it) || to.answersCollection(it) {
		return true
	}
	if it.HasAliases() {
		for alias := range it.Aliases() {
			if to.answersAmong(to.types.named(alias), s, it) {
				return true
			}
		}
	}
	return false
}

// answersAmong does so among the other subscriptions to a name.
func (to *recipients) answersAmong(first, s *subscription, it *item) bool {
	for other := range first.siblings() {
		if c := other.offer.in(to.number); other != s && c.Made && c.Index == it.Index && other.State.Pending() && other.payload != nil {
			return true
		}
	}
	return false
}

// answersCollection does so among the collections that have a resource.
func (to *recipients) answersCollection(it *item) bool {
	first, name := to.types.collectionsOf(it.Name)
	for s := range first.siblings() {
		if !s.State.Pending() || !s.resource.constraints.Match(it.parameters) {
			continue
		}
		m := s.collection.sentMember(resourceKey{typ: to.types.typ, name: name, variant: it.parameters.Key()})
		if m != nil && m.payload != nil {
			return true
		}
	}
	return false
}
