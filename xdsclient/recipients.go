package xdsclient

import (
	"github.com/dynxds/dynxds/xdsclient/dynparam"
	"github.com/dynxds/dynxds/xdsclient/internal/ads"
)

// recipients are the subscriptions that a resource of a response is for, members of collections among them. They are valid
// until the next resource.
type recipients struct {
	*update
	found []*subscription
	// entering are the collections that the resource enters, as member.
	entering []*subscription
	member   Member
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
		takes, passes := to.takes(s, it)
		if takes {
			to.found = append(to.found, s)
		}
		to.outranked = to.outranked || passes
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
		if m := s.members.get(resourceKey{typ: to.types.typ, name: name, variant: it.parameters.Key()}); m != nil {
			to.found = append(to.found, m)
		} else {
			to.entering, to.member = append(to.entering, s), Member{name, it.parameters}
		}
	}
}

// enterMembers adds to the collections the members that they do not have yet.
func (to *recipients) enterMembers(it *item) {
	for _, s := range to.entering {
		m, err := s.enter(to.member)
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
	for _, s := range to.entering {
		if p := s.knownMember(to.member, it, to.ch.server); p != nil {
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

// takes reports whether a subscription to the name of a resource takes it, and passes whether it does not, though the resource
// matches, because of something better.
func (to *recipients) takes(s *subscription, it *item) (takes, passes bool) {
	if !to.types.Dialect.Locators() {
		return true, false
	}
	switch c := s.offer.in(to.number); {
	case !it.unreadable && !s.resource.constraints.Match(it.parameters):
		return false, false
	case s.offer != nil && s.offer.denied == to.number: // the response has an error for this very subscription
		return false, true
	case !c.made: // it began after the offers were compared: the response is not the answer to it
		to.late = true
		return false, false
	case it.unreadable:
		return c.index == it.Index, false
	case c.unreadable || !c.parameters.Equal(it.parameters):
		return false, true
	case to.holdsBetter(s, it) && (to.types.MayBeForAnother(s, it.parameters) || to.collected(it)):
		to.contest(s, it)
		return false, true
	default: // A second one with the same parameters is a fault, which is not found here.
		return true, false
	}
}

// holdsBetter reports whether a subscription has a variant of the server that it prefers, and that the response
// neither names as removed nor omits from a full state.
func (to *recipients) holdsBetter(s *subscription, it *item) bool {
	stands := s.State == ads.Received || s.State == ads.Reask || s.State.Pending() && !s.offer.asks
	if s.payload == nil || !stands || s.offer.retracted == to.number || to.resp.FullState && to.types.typ.FullStateInSotW {
		return false
	}
	return s.resource.constraints.Choose([]dynparam.Parameters{it.parameters, s.taken.parameters}).Index == 1
}

// maxConfirmed bounds how often in a row answers to questions about others are reason enough to
// ask again. A server that answers each question by itself could be asked for ever by two
// subscriptions that match what the other one prefers.
const maxConfirmed = 4

// contest has a subscription keep the variant that it prefers, and ask whether the server still has that.
//
// The response has something new for some subscription, perhaps one that the client has ended since, and this one may only
// match the resource as well; or the server has sent it because of this one, which has lost the variant that it
// prefers. So the server is asked, and its answer counts. If the resource may be the answer to a question about
// another one, the asking ends with maxConfirmed:
//
//	a{shard=0-5} has shard=5            server sends shard=3, which a{shard=0-3} was waiting for
//	client asks again for a{shard=0-5}  server sends shard=5 again: confirmed is 1
func (to *recipients) contest(s *subscription, it *item) {
	if s.offer.confirmed < maxConfirmed || !to.answersAnother(s, it) {
		s.offer.asks = true
		to.types.Step(s, ads.Contested)
	}
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
		if c := other.offer.in(to.number); other != s && c.made && c.index == it.Index && other.State.Pending() && other.payload != nil {
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
		m := s.members.get(resourceKey{typ: to.types.typ, name: name, variant: it.parameters.Key()})
		if m != nil && m.payload != nil {
			return true
		}
	}
	return false
}
