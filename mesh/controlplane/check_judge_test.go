package controlplane

import "slices"

// judge checks a response by what the server has read, and what the store has.
func (x *trial) judge(r *checkResponse) {
	seen := map[checkValue]bool{}
	for _, v := range r.resources {
		it := &x.way.things[v.item()]
		if seen[v] {
			x.Fail("the server sends %s twice in a response", it.text)
		}
		seen[v] = true
		now := x.world[v.item()]
		if now != v.content() && !(x.way.keeps && x.latest[v.item()] == v.content()) {
			x.Fail("the server sends %s, which is not in the store", x.show(v))
		}
		if !x.asks(v.item()) {
			x.Fail("the server sends %s, which matches no subscription: %s", it.text, x.bits(x.subscribed))
		}
	}
	for _, e := range r.removed {
		x.judgeRemoval(e, r)
		x.judgeExplanation(e, r)
	}
	for _, e := range r.errors {
		if e.subs&x.subscribed == 0 && !x.asksForAny(e.items) {
			x.Fail("the server sends an error for what is not subscribed: %s", e.text)
		}
		for l := range x.way.subs_ {
			if e.subs&x.subscribed&(1<<l) != 0 && x.of(l) != e.value {
				x.Fail("the server sends %s the error %s, though it has %s", x.way.subs_[l].text, e.text, x.show(x.of(l)))
			}
		}
	}
}

// judgeRemoval checks that nothing is said to be removed that a subscription has. What is in error may be removed beside it.
func (x *trial) judgeRemoval(e checkRemoval, r *checkResponse) {
	for l := range x.way.subs_ {
		bit := uint(1) << l
		inError := slices.ContainsFunc(r.errors, func(why checkRemoval) bool { return why.subs&bit != 0 && why.value == x.of(l) })
		if e.subs&x.subscribed&bit != 0 && x.of(l) != checkNothing && !inError && !x.repeats(l, e) {
			x.Fail("the server says that %s is removed, which has %s", x.way.subs_[l].text, x.show(x.of(l)))
		}
		if x.subscribed&bit == 0 {
			continue
		}
		for i := range x.way.things {
			if e.items&(1<<i) != 0 && x.member(l, i).isThere() {
				x.Fail("the server says that %s is removed, which %s has", x.way.things[i].text, x.way.subs_[l].text)
			}
		}
	}
	wildcard := slices.ContainsFunc(x.way.subs_, func(s checkSub) bool { return s.name == wildcardName })
	if (e.subs|e.items) == 0 || e.subs&x.subscribed == 0 && !x.asksForAny(e.items) && !wildcard {
		x.Fail("the server says that something is removed that is not subscribed: %s", e.text)
	}
}

// judgeExplanation checks that the absence of a name that is subscribed is explained beside its removal, and no other.
func (x *trial) judgeExplanation(e checkRemoval, r *checkResponse) {
	explained := slices.ContainsFunc(r.errors, func(why checkRemoval) bool { return why.subs == e.subs && why.value == checkNothing })
	if asked := e.subs&x.subscribed != 0; x.way.explains && explained != asked {
		x.Fail("the server says that %s is removed; why: %v; subscribed: %v", e.text, explained, asked)
	}
}

// repeats reports whether a removal of a variant from a collection may be for a subscription of the same name and
// constraints, which the server sends again at once.
func (x *trial) repeats(l int, e checkRemoval) bool {
	sub := x.st.subs[x.way.typeURL]
	_, exact := x.way.subs_[l].constraints.Parameters()
	again := sub.items.urgency(topic{keyOf(x.way.subs_[l].name), markConstraints + x.way.subs_[l].constraints.Key()}) == inAnyCase
	return x.way.locators && exact && e.items != 0 && again
}

// asks reports whether a subscription that the server has read matches an item.
func (x *trial) asks(item int) bool {
	it := &x.way.things[item]
	for l := range x.way.subs_ {
		s := &x.way.subs_[l]
		within := (s.name == it.name || x.covers(l, item)) && !x.isDenied(l)
		if x.subscribed&(1<<l) != 0 && within && x.constraintsOf(l).Match(it.parameters) {
			return true
		}
	}
	return false
}

func (x *trial) asksForAny(items uint) bool {
	for i := range x.way.things {
		if items&(1<<i) == 0 {
			continue
		}
		for l := range x.way.subs_ {
			if x.subscribed&(1<<l) != 0 && x.covers(l, i) {
				return true
			}
		}
	}
	return false
}
