package xdsclient

import (
	"github.com/dynxds/dynxds/xdsclient/dynparam"
	"github.com/dynxds/dynxds/xdsclient/internal/ads"
)

// findRecipients finds the recipients of a resource: the subscriptions to its own name and to its aliases,
// and the members of collections.
func (u *update) findRecipients(it *item) {
	u.found, u.collects, u.outranked = u.found[:0], false, false
	u.ch.finds++
	u.addSubscriptions(u.types.subs.named(it.Name), it)
	if it.HasAliases() {
		for alias := range it.Aliases() {
			u.addSubscriptions(u.types.subs.named(alias), it)
		}
	}
	u.addMembers(it)
}

// addSubscriptions adds the subscriptions to a name that take the resource. Each is added once.
func (u *update) addSubscriptions(first *subscription, it *item) {
	for s := range first.siblings() {
		if s.isCollection() || s.found == u.ch.finds || !u.types.asked(s) {
			continue
		}
		s.found = u.ch.finds
		takes, passes := u.takes(s, it)
		if takes {
			u.found = append(u.found, s)
		}
		u.outranked = u.outranked || passes
	}
}

// addMembers adds the members that the resource is. Collections take all variants that match. One that they do not have yet enters
// them at once, as a member of which nothing is known, unless it is a heartbeat.
func (u *update) addMembers(it *item) {
	if it.unreadable {
		return
	}
	first, name := u.types.collectionsOf(it.Name)
	for s := range first.siblings() {
		if !u.types.asked(s) || !s.resource.constraints.Match(it.parameters) {
			continue
		}
		u.collects = true
		m := s.members.get(resourceKey{typ: u.types.typ, name: name, variant: it.parameters.Key()})
		if m == nil && !it.Heartbeat {
			var err error
			if m, err = s.enter(Member{name, it.parameters}); err != nil && !it.invalid {
				u.blame(it, u.where(it), err)
			}
		}
		if m != nil {
			u.found = append(u.found, m)
		}
	}
}

// knownVersion returns the decoded value of a resource's very bytes that one of the recipients has, or nil. Then it
// notes the value of other bytes that one has from the server, if any.
func (u *update) knownVersion(it *item) *payload {
	for _, s := range u.found {
		if p := s.known(it, u.ch.server); p != nil {
			return p
		}
		if s.payload != nil && s.payload.server == u.ch.server {
			it.last = s.payload.value
		}
	}
	return nil
}

// takes reports whether a subscription to the name of a resource takes it, and passes whether it does not, though the resource
// matches, because of something better.
func (u *update) takes(s *subscription, it *item) (takes, passes bool) {
	if !u.ch.dialect.Locators {
		return true, false
	}
	switch c := s.offer.in(u.number); {
	case !it.unreadable && !s.resource.constraints.Match(it.parameters):
		return false, false
	case s.offer != nil && s.offer.denied == u.number: // the response has an error for this very subscription
		return false, true
	case !c.made: // it began after the offers were compared: the response is not the answer to it
		u.late = true
		return false, false
	case it.unreadable:
		return c.index == it.Index, false
	case c.unreadable || !c.parameters.Equal(it.parameters):
		return false, true
	case u.holdsBetter(s, it) && (u.types.mayBeForAnother(s, it.parameters) || u.collected(it)):
		u.contest(s, it)
		return false, true
	default: // A second one with the same parameters is a fault, which is not found here.
		return true, false
	}
}

// holdsBetter reports whether a subscription has a variant of the server that it prefers, and that the response
// neither names as removed nor omits from a full state.
func (u *update) holdsBetter(s *subscription, it *item) bool {
	stands := s.State == ads.Received || s.State == ads.Reask || s.State.Pending() && !s.offer.asks
	if s.payload == nil || !stands || s.offer.retracted == u.number || u.types.fullState() {
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
func (u *update) contest(s *subscription, it *item) {
	if s.offer.confirmed < maxConfirmed || !u.answersAnother(s, it) {
		s.offer.asks = true
		s.step(ads.Contested)
	}
}

// answersAnother reports whether a resource may be the answer to the question whether another subscription
// still has the variant that it prefers.
func (u *update) answersAnother(s *subscription, it *item) bool {
	if u.answersAmong(u.types.subs.named(it.Name), s, it) || u.answersCollection(it) {
		return true
	}
	if it.HasAliases() {
		for alias := range it.Aliases() {
			if u.answersAmong(u.types.subs.named(alias), s, it) {
				return true
			}
		}
	}
	return false
}

// answersAmong does so among the other subscriptions to a name.
func (u *update) answersAmong(first, s *subscription, it *item) bool {
	for other := range first.siblings() {
		if c := other.offer.in(u.number); other != s && c.made && c.index == it.Index && other.State.Pending() && other.payload != nil {
			return true
		}
	}
	return false
}

// answersCollection does so among the collections that have a resource.
func (u *update) answersCollection(it *item) bool {
	first, name := u.types.collectionsOf(it.Name)
	for s := range first.siblings() {
		if !s.State.Pending() || !s.resource.constraints.Match(it.parameters) {
			continue
		}
		m := s.members.get(resourceKey{typ: u.types.typ, name: name, variant: it.parameters.Key()})
		if m != nil && m.payload != nil {
			return true
		}
	}
	return false
}
