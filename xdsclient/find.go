package xdsclient

import (
	"hash/maphash"
)

// Which subscriptions a resource is for, and what is left to do for it.

// readParameters reads what tells the variant, if the server was asked for one.
func (u *update) readParameters(it *item) {
	if !u.types.Dialect.Locators() {
		return
	}
	if u.published(&it.Resource) {
		it.published, it.bare, it.Heartbeat, it.Err = true, false, false, errPublished
		return
	}
	var err error
	if it.parameters, err = u.parametersOf(&it.Resource); err != nil {
		it.unreadable, it.Err = true, err
	}
}

// settled reports whether nothing is left to do for a resource.
func (u *update) settled(it *item) bool {
	if it.bare {
		s := u.unchangedBare(it)
		if s == nil {
			return false
		}
		u.search()
		u.look(u.types.subs.first(s), it)
		return u.repeat(it)
	}
	u.find(it)
	switch {
	case u.nobody():
		if it.unreadable && u.asked(it.Name) {
			return false
		}
		u.drop(it)
	case it.Heartbeat:
		u.heartbeat(u.found, it)
	case it.Err != nil:
		return false
	default:
		return u.repeat(it)
	}
	return true
}

// unchangedBare returns the subscription of which the very bytes of a bare resource
// are known, or nil. Servers keep their order, so it looks first at what came behind
// the one before the last time.
func (u *update) unchangedBare(it *item) *subscription {
	if it.Err != nil {
		return nil
	}
	if u.before != nil {
		if s := u.before.after; s != nil && s.hash != 0 && s.known(it.Value, u.ch.server) != nil {
			it.hash, u.before = s.hash, s
			return s
		}
	}
	it.hash = maphash.Bytes(u.ch.client.seed, it.Value)
	s := u.types.withBytes(it.Value, it.hash)
	if s == nil {
		s = u.findElsewhere(it)
	}
	if s != nil {
		if u.before != nil {
			u.before.after = s
		}
		u.before = s
	}
	return s
}

// findElsewhere returns the subscription of which another level of its authority has the
// very bytes of a bare resource, or nil.
func (u *update) findElsewhere(it *item) *subscription {
	for l := range u.ch.levels {
		for _, other := range l.authority.levels {
			if other == l || other.channel == nil {
				continue
			}
			ts := other.channel.typeStateOf(u.types.typ.TypeURL)
			if ts == nil || ts.byHash[it.hash] == nil {
				continue
			}
			s := u.types.subs.get(ts.byHash[it.hash].resource.key)
			if s != nil && s.known(it.Value, u.ch.server) != nil {
				u.types.index(s, it.hash)
				return s
			}
		}
	}
	return nil
}

// repeat takes a resource that is for those found as it is, if one of them knows what
// it means. It reports whether that is so.
func (u *update) repeat(it *item) bool {
	known := u.known(it)
	if known == nil && !u.nobody() {
		return false
	}
	u.unchanged++
	u.enterAll(it)
	for _, s := range u.found {
		u.accept(s, it, known)
	}
	return true
}

// known returns what was decoded of a resource's very bytes for one of those found,
// or nil.
func (u *update) known(it *item) *payload {
	for _, s := range u.found {
		if p := s.known(it.Value, u.ch.server); p != nil {
			return p
		}
	}
	for _, n := range u.entering {
		if p := n.known(it.Value, u.ch.server); p != nil {
			return p
		}
	}
	return nil
}

// enterAll makes the members that collections do not have yet.
func (u *update) enterAll(it *item) {
	for _, n := range u.entering {
		m, err := u.enter(n)
		if err != nil {
			u.blame(it, u.where(it), err)
			continue
		}
		u.found = append(u.found, m)
	}
	u.entering = u.entering[:0]
}

// find finds the subscriptions that a resource is for, those to its own name and to
// its aliases and the members of collections, and the collections that have no such
// member yet. They are valid until the next call.
func (u *update) find(it *item) {
	u.search()
	u.look(u.types.named(it.Name), it)
	if it.HasAliases() {
		for alias := range it.Aliases() {
			u.look(u.types.named(alias), it)
		}
	}
	u.lookInCollections(it)
}

// search begins to look.
func (u *update) search() {
	u.found, u.entering, u.outranked = u.found[:0], u.entering[:0], false
	u.ch.finds++
}

// nobody reports whether nobody was found.
func (u *update) nobody() bool { return len(u.found) == 0 && len(u.entering) == 0 }

// look adds the subscriptions to a name that take the resource, unless they are
// there.
func (u *update) look(first *subscription, it *item) {
	for s := range first.siblings() {
		if s.members != nil || s.found == u.ch.finds || !u.types.Asked(s) {
			continue
		}
		s.found = u.ch.finds
		takes, outranked := u.takes(s, it)
		if takes {
			u.found = append(u.found, s)
		}
		u.outranked = u.outranked || outranked
	}
}

// lookInCollections adds the members that the resource is. Collections take all
// variants that match.
func (u *update) lookInCollections(it *item) {
	if it.unreadable {
		return
	}
	first, name := u.types.collectionsOf(it.Name)
	for s := range first.siblings() {
		if !u.types.Asked(s) || !s.resource.constraints.Match(it.parameters) {
			continue
		}
		if m := s.members.get(resourceKey{name: name, variant: it.parameters.Key()}); m != nil {
			u.found = append(u.found, m)
		} else {
			u.entering = append(u.entering, newcomer{s, Member{name, it.parameters}})
		}
	}
}

// asked reports whether anything of this name is subscribed to.
func (u *update) asked(name []byte) bool {
	if u.types.named(name) != nil {
		return true
	}
	first, _ := u.types.collectionsOf(name)
	return first != nil
}

// drop counts a resource that is for nobody.
func (u *update) drop(it *item) {
	if u.outranked {
		u.passed++
		return
	}
	if u.unasked++; u.types.Dialect.Locators() && u.asked(it.Name) {
		u.unmatched++
	}
}
