package controlplane

import (
	"iter"
	"slices"
)

// numbers is an ordered set of numbers that numbered gave out. These begin at 1, so that most need
// 2 bytes.
type numbers struct {
	low  []uint16
	high []uint32 // those that are no uint16
}

const firstHigh = 1 << 16

func (n *numbers) len() int { return len(n.low) + len(n.high) }

// find returns the position of a number, in order, and whether it is in the set.
func (n *numbers) find(number uint32) (int, bool) {
	if number < firstHigh {
		return slices.BinarySearch(n.low, uint16(number))
	}
	i, ok := slices.BinarySearch(n.high, number)
	return len(n.low) + i, ok
}

func (n *numbers) has(number uint32) bool {
	_, ok := n.find(number)
	return ok
}

// all returns the positions and the numbers.
func (n *numbers) all() iter.Seq2[int, uint32] {
	return func(yield func(int, uint32) bool) {
		for i, low := range n.low {
			if !yield(i, uint32(low)) {
				return
			}
		}
		for i, high := range n.high {
			if !yield(len(n.low)+i, high) {
				return
			}
		}
	}
}

// insert reports whether the number was not in the set.
func (n *numbers) insert(number uint32) bool {
	i, found := n.find(number)
	switch {
	case found:
		return false
	case number < firstHigh:
		n.low = insertTight(n.low, i, uint16(number))
	default:
		n.high = insertTight(n.high, i-len(n.low), number)
	}
	return true
}

// insertTight grows a long list by an eighth: there are as many lists as names.
func insertTight[T any](list []T, i int, v T) []T {
	if n := len(list); n == cap(list) && n >= 64 {
		list = append(make([]T, 0, n+n/8), list...)
	}
	return slices.Insert(list, i, v)
}

// remove reports whether the number was in the set.
func (n *numbers) remove(number uint32) bool {
	i, found := n.find(number)
	switch {
	case !found:
		return false
	case number < firstHigh:
		n.low = deleteTight(n.low, i)
	default:
		n.high = deleteTight(n.high, i-len(n.low))
	}
	return true
}

func deleteTight[T any](list []T, i int) []T {
	list = slices.Delete(list, i, i+1)
	if cap(list) > 64 && len(list) < cap(list)/4 {
		return slices.Clone(list)
	}
	return list
}

// tight returns a list without room for more.
func tight[T any](list []T) []T {
	if len(list) == cap(list) {
		return list
	}
	return append(make([]T, 0, len(list)), list...)
}

// askedSet are the asks that a subscription has joined, by number, and for each whether the client knows
// what is there, which is its entry (or, if that is nil, that there is none). Only delta streams
// record the latter; see subscription.known. Store.mu guards the numbers, and stream.mu, beside Store.mu
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

// pop removes one of the numbers, if there are any. What is known is not kept.
func (s *askedSet) pop() (uint32, bool) {
	if last := len(s.high) - 1; last >= 0 {
		number := s.high[last]
		s.high = s.high[:last]
		return number, true
	}
	if last := len(s.low) - 1; last >= 0 {
		number := s.low[last]
		s.low = s.low[:last]
		return uint32(number), true
	}
	return 0, false
}

// at returns the number at a position.
func (n *numbers) at(i int) uint32 {
	if i < len(n.low) {
		return uint32(n.low[i])
	}
	return n.high[i-len(n.low)]
}

// change returns the set without removed and with added, which it sorts.
func (s *askedSet) change(removed, added []uint32) askedSet {
	if len(removed) == 0 && len(added) == 0 {
		return *s
	}
	slices.Sort(removed)
	slices.Sort(added)
	var next askedSet
	next.low = make([]uint16, 0, min(len(s.low)+len(added), firstHigh))
	if n := len(s.high) + len(added); len(s.high) > 0 || len(added) > 0 && added[len(added)-1] >= firstHigh {
		next.high = make([]uint32, 0, n)
	}
	if s.bits != nil {
		next.bits = make([]uint64, (s.len()+len(added)+63)/64)
	}
	put := func(number uint32, known bool) {
		if known {
			i := next.len()
			next.bits[i/64] |= 1 << (i % 64)
		}
		if number < firstHigh {
			next.low = append(next.low, uint16(number))
		} else {
			next.high = append(next.high, number)
		}
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
	next.low, next.high = tight(next.low), tight(next.high)
	return next
}
