package controlplane

// checkKept has the resources that the server must not take from the client yet: it sent them on the stream, and the store
// has deleted them since. They may go once the removal delay has passed, or the client changes its subscriptions to their name.
type checkKept struct {
	// sent is what the server sent last for each subscription, and members are the items that it sent for each collection.
	sent    [maxCheckSubs]checkValue
	members [maxCheckSubs]uint
	// names are the subscriptions whose resource is deleted, and lost the items of each collection that are.
	names uint
	lost  [maxCheckSubs]uint
}

// endDelay lets the server take away all resources that are kept.
func (k *checkKept) endDelay() { k.names, k.lost = 0, [maxCheckSubs]uint{} }

// forget removes the resources of a name, those that are kept and those that were sent.
func (k *checkKept) forget(x *trial, name string) {
	for l := range x.way.subs_ {
		if x.way.subs_[l].name == name {
			k.names &^= 1 << l
			k.sent[l] = checkUnsaid
		}
		for i := range x.way.things {
			if x.way.things[i].name == name {
				k.lost[l] &^= 1 << i
				k.members[l] &^= 1 << i
			}
		}
	}
}

// subscribe is called when the server has read that subscriptions begin, end, or begin again.
func (k *checkKept) subscribe(x *trial, subs uint) {
	for l := range x.way.subs_ {
		switch s := &x.way.subs_[l]; {
		case subs&(1<<l) == 0:
		case s.collection: // the client learns what there is
			*k = checkKept{}
			return
		default:
			k.forget(x, s.name)
		}
	}
}

// put is called when an item was something else in the store.
func (k *checkKept) put(x *trial, i int, was checkContent) {
	it := &x.way.things[i]
	switch {
	case it.glob:
		*k = checkKept{}
	case x.world[i] != checkAbsent:
		k.endNamed(x, it.name)
	case was == checkX || was == checkY:
		for l := range x.way.subs_ {
			if x.subscribed&(1<<l) == 0 || x.choice(it.name, x.constraintsOf(l)) != checkNothing {
				continue
			}
			if k.sent[l].isThere() && k.sent[l].item() == i {
				k.names |= 1 << l
			}
			k.lost[l] |= k.members[l] & (1 << i)
		}
	}
}

// endNamed removes the kept resources of a name that has a resource in the store again.
func (k *checkKept) endNamed(x *trial, name string) {
	sent, members := k.sent, k.members
	k.forget(x, name)
	k.sent, k.members = sent, members
}

// judge checks that a response takes away no resource that is kept, and adds the resources that the response sends.
func (k *checkKept) judge(x *trial, r *checkResponse) {
	for l := range x.way.subs_ {
		bit := uint(1) << l
		if x.subscribed&bit == 0 {
			continue
		}
		sent, members := k.sent[l], k.members[l]
		if r.full {
			sent, members = checkNothing, 0
		}
		if best := x.best(r, l); best != checkUnsaid && !x.way.subs_[l].collection {
			sent = best
		}
		for _, v := range r.resources {
			if x.covers(l, v.item()) && x.constraintsOf(l).Match(x.way.things[v.item()].parameters) {
				members |= 1 << v.item()
			}
		}
		for _, list := range [][]checkRemoval{r.removed, r.errors} {
			for _, e := range list {
				members &^= e.items
				if e.subs&bit != 0 {
					sent = e.value
				}
			}
		}
		if k.names&bit != 0 && !sent.isThere() || k.lost[l]&^members != 0 {
			x.Fail("the server takes away what %s has before the removal delay has passed", x.way.subs_[l].text)
		}
		k.sent[l], k.members[l] = sent, members
	}
}
