package controlplane

import "iter"

// The index of a type connects subscriptions and asks, which many streams share. A stream with 1,000
// subscriptions should cost little more than their number: so both sides have numbers of the other,
// 4 bytes each, in place of names and pointers.

// index numbers the asks and the subscriptions of one table. Store.mu guards it.
type index struct {
	asks numbered[ask]
	subs numbered[subscription]
}

// numbered gives out numbers from 1 on; those that were returned are given out again. It has none, if all were.
type numbered[T any] struct {
	of   []*T
	free []uint32
}

func (n *numbered[T]) add(v *T) uint32 {
	if last := len(n.free) - 1; last >= 0 {
		number := n.free[last]
		n.free = n.free[:last]
		n.of[number-1] = v
		return number
	}
	n.of = append(n.of, v)
	return uint32(len(n.of))
}

func (n *numbered[T]) get(number uint32) *T { return n.of[number-1] }

func (n *numbered[T]) remove(number uint32) {
	n.of[number-1] = nil
	n.free = append(n.free, number)
	if len(n.free) == len(n.of) {
		*n = numbered[T]{}
	}
}

// crowd is the number of asks for one name beyond which they are found by a map.
const crowd = 16

// ask returns the ask for a name with the constraints, nil if there is none.
func (t *table) ask(key nameKey, constraints string) *ask {
	asks := t.asks.m[key]
	if len(asks) > crowd {
		return t.crowds[key][constraints]
	}
	for _, a := range asks {
		if a.key == constraints {
			return a
		}
	}
	return nil
}

func (t *table) addAsk(a *ask) {
	asks := append(t.asks.m[a.name], a)
	a.at = len(asks) - 1
	t.asks.set(a.name, asks)
	a.number = t.index.asks.add(a)
	switch {
	case len(asks) == crowd+1:
		all := make(map[string]*ask, len(asks))
		for _, one := range asks {
			all[one.key] = one
		}
		t.crowds[a.name] = all
	case len(asks) > crowd:
		t.crowds[a.name][a.key] = a
	}
}

func (t *table) removeAsk(a *ask) {
	if t.ask(a.name, a.key) != a {
		return
	}
	t.index.asks.remove(a.number)
	asks := t.asks.m[a.name]
	last := len(asks) - 1
	asks[a.at], asks[last].at = asks[last], a.at
	asks[last] = nil
	if asks = asks[:last]; len(asks) <= crowd {
		delete(t.crowds, a.name)
	} else {
		delete(t.crowds[a.name], a.key)
	}
	if len(asks) > 0 {
		t.asks.set(a.name, asks)
	} else {
		t.asks.delete(a.name)
	}
}

// addSub adds a subscription to an ask.
func (a *ask) addSub(sub *subscription) {
	if a.subs.insert(sub.number) && a.name == wildcardKey {
		sub.wildcards++
	}
	if a.payer == nil {
		payNames(&a.payer, sub.stream.usage.peer, a.weight())
	}
}

func (a *ask) weight() int64 { return nameWeight(a.spelling, a.key) }

func (a *ask) removeSub(sub *subscription) {
	if !a.subs.remove(sub.number) {
		return
	}
	if a.payer == sub.stream.usage.peer {
		var next *peerUsage
		if len(a.subs) > 0 {
			next = a.table.index.subs.get(a.subs[0]).stream.usage.peer
		}
		payNames(&a.payer, next, a.weight())
	}
	if a.name == wildcardKey {
		sub.wildcards--
	}
}

func (a *ask) hasSub(sub *subscription) bool { return a.subs.has(sub.number) }

// subscriptions returns the subscriptions of an ask, which must not change meanwhile.
func (a *ask) subscriptions() iter.Seq[*subscription] {
	return func(yield func(*subscription) bool) {
		for _, number := range a.subs {
			if !yield(a.table.index.subs.get(number)) {
				return
			}
		}
	}
}
