package controlplane

import (
	"iter"
	"slices"
	"strings"
)

// The index of a type connects subscriptions and asks, which many streams share. A stream with 1,000
// subscriptions should cost little more than their number: so both sides have numbers of the other,
// 4 bytes each, in place of names and pointers.

// index numbers the asks and the subscriptions of one table. Store.mu guards it.
type index struct {
	asks numbered[ask]
	subs numbered[subscription]
}

// numbered gives out numbers from 1 on; those that were returned are given out again.
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

// asked is one ask that a subscription has joined: its number, and whether the client knows what is
// there, which is its entry (or, if that is nil, that there is none). Only delta streams record the
// latter; see subscription.known.
type asked uint32

func newAsked(number uint32) asked { return asked(number << 1) }

func (a asked) number() uint32 { return uint32(a) >> 1 }
func (a asked) known() bool    { return a&1 == 1 }

func compareAsked(a asked, number uint32) int { return int(int64(a.number()) - int64(number)) }

// askedSet is ordered by number. Store.mu guards which asks are in it, and stream.mu, beside Store.mu
// held for reading, what is known of them.
type askedSet []asked

func (s askedSet) find(number uint32) (int, bool) {
	return slices.BinarySearchFunc(s, number, compareAsked)
}

func (s askedSet) has(number uint32) bool {
	_, ok := s.find(number)
	return ok
}

// known reports whether the client knows the entry of an ask.
func (s askedSet) known(number uint32) bool {
	i, ok := s.find(number)
	return ok && s[i].known()
}

// setKnown does nothing if the ask is not in the set.
func (s askedSet) setKnown(number uint32, known bool) {
	i, ok := s.find(number)
	switch {
	case !ok:
	case known:
		s[i] |= 1
	default:
		s[i] &^= 1
	}
}

// change returns the set without removed and with added, which are not ordered.
func (s askedSet) change(removed, added []uint32) askedSet {
	if len(removed) == 0 && len(added) == 0 {
		return s
	}
	slices.Sort(removed)
	slices.Sort(added)
	next := make(askedSet, 0, len(s)+len(added)-len(removed))
	for _, a := range s {
		for len(added) > 0 && added[0] < a.number() {
			next = append(next, newAsked(added[0]))
			added = added[1:]
		}
		if len(removed) > 0 && removed[0] == a.number() {
			removed = removed[1:]
			continue
		}
		next = append(next, a)
	}
	for _, number := range added {
		next = append(next, newAsked(number))
	}
	return next
}

// ask returns the ask for a name with the constraints, nil if there is none.
func (t *table) ask(key nameKey, constraints string) *ask {
	asks := t.asks[key]
	if i, ok := searchAsk(asks, constraints); ok {
		return asks[i]
	}
	return nil
}

func searchAsk(asks []*ask, constraints string) (int, bool) {
	return slices.BinarySearchFunc(asks, constraints, func(a *ask, key string) int { return strings.Compare(a.key, key) })
}

func (t *table) addAsk(a *ask) {
	asks := t.asks[a.name]
	i, _ := searchAsk(asks, a.key)
	t.asks[a.name] = slices.Insert(asks, i, a)
	a.number = t.index.asks.add(a)
}

func (t *table) removeAsk(a *ask) {
	asks := t.asks[a.name]
	i, found := searchAsk(asks, a.key)
	if !found || asks[i] != a {
		return
	}
	t.index.asks.remove(a.number)
	if asks = slices.Delete(asks, i, i+1); len(asks) > 0 {
		t.asks[a.name] = asks
		return
	}
	delete(t.asks, a.name)
	if len(t.asks) == 0 {
		t.asks = map[nameKey][]*ask{} // a map does not shrink
	}
}

// addSub adds a subscription to an ask.
func (a *ask) addSub(sub *subscription) {
	if sub.number == 0 {
		sub.number = a.table.index.subs.add(sub)
	}
	i, found := slices.BinarySearch(a.subs, sub.number)
	if found {
		return
	}
	if n := len(a.subs); n == cap(a.subs) && n >= 64 {
		// There are as many of these lists as names: room for an eighth more is enough.
		a.subs = append(make([]uint32, 0, n+n/8), a.subs...)
	}
	a.subs = slices.Insert(a.subs, i, sub.number)
	sub.joined++
}

func (a *ask) removeSub(sub *subscription) {
	i, found := slices.BinarySearch(a.subs, sub.number)
	if sub.number == 0 || !found {
		return
	}
	a.subs = slices.Delete(a.subs, i, i+1)
	if cap(a.subs) > 64 && len(a.subs) < cap(a.subs)/4 {
		a.subs = slices.Clone(a.subs)
	}
	if sub.joined--; sub.joined == 0 {
		a.table.index.subs.remove(sub.number)
		sub.number = 0
	}
}

func (a *ask) hasSub(sub *subscription) bool {
	_, found := slices.BinarySearch(a.subs, sub.number)
	return found && sub.number != 0
}

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
