package controlplane

import (
	"iter"
	"slices"
)

// numbers is an ordered set of numbers that numbered gave out.
type numbers []uint32

func (n numbers) len() int { return len(n) }

// find returns the position of a number, in order, and whether it is in the set.
func (n numbers) find(number uint32) (int, bool) { return slices.BinarySearch(n, number) }

func (n numbers) has(number uint32) bool {
	_, ok := n.find(number)
	return ok
}

// all returns the positions and the numbers.
func (n numbers) all() iter.Seq2[int, uint32] { return slices.All(n) }

// insert reports whether the number was not in the set. A long list grows by an eighth: there are as many lists as names.
func (n *numbers) insert(number uint32) bool {
	i, found := n.find(number)
	if found {
		return false
	}
	if size := len(*n); size == cap(*n) && size >= 64 {
		*n = append(make(numbers, 0, size+size/8), *n...)
	}
	*n = slices.Insert(*n, i, number)
	return true
}

// remove reports whether the number was in the set. A list that was long shrinks.
func (n *numbers) remove(number uint32) bool {
	i, found := n.find(number)
	if !found {
		return false
	}
	*n = slices.Delete(*n, i, i+1)
	if cap(*n) > 64 && len(*n) < cap(*n)/4 {
		*n = slices.Clone(*n)
	}
	return true
}

// askedSet are the asks that a subscription has joined, by number, and for each whether the client knows
// what is there, which is its entry (or, if that is nil, that there is none). Only delta streams
// record the latter; see marked. Store.mu guards the numbers, and stream.mu, beside Store.mu
// held for reading, what is known.
type askedSet struct {
	numbers
	// bits has one for each position that is known; none is known beyond its end.
	bits []uint64
}

// known reports whether the client knows the entry of an ask.
func (s *askedSet) known(number uint32) bool {
	i, ok := s.find(number)
	return ok && s.knownAt(i)
}

func (s *askedSet) knownAt(i int) bool { return i/64 < len(s.bits) && s.bits[i/64]>>(i%64)&1 == 1 }

// setKnown does nothing if the ask is not in the set.
func (s *askedSet) setKnown(number uint32, known bool) {
	i, ok := s.find(number)
	if !ok || s.knownAt(i) == known {
		return
	}
	if s.bits == nil {
		s.bits = make([]uint64, (s.len()+63)/64)
	}
	s.bits[i/64] ^= 1 << (i % 64)
}

// change returns the set without removed and with added, which it sorts.
func (s *askedSet) change(removed, added []uint32) askedSet {
	if len(removed) == 0 && len(added) == 0 {
		return *s
	}
	slices.Sort(removed)
	slices.Sort(added)
	var next askedSet
	next.numbers = make(numbers, 0, max(0, s.len()+len(added)-len(removed)))
	if s.bits != nil {
		next.bits = make([]uint64, (s.len()+len(added)+63)/64)
	}
	put := func(number uint32, known bool) {
		if known {
			i := next.len()
			next.bits[i/64] |= 1 << (i % 64)
		}
		next.numbers = append(next.numbers, number)
	}
	for i, number := range s.all() {
		for len(removed) > 0 && removed[0] < number {
			removed = removed[1:]
		}
		if len(removed) > 0 && removed[0] == number {
			continue // the number may be that of another ask now, in added
		}
		for len(added) > 0 && added[0] < number {
			put(added[0], false)
			added = added[1:]
		}
		put(number, s.knownAt(i))
	}
	for _, number := range added {
		put(number, false)
	}
	return next
}
