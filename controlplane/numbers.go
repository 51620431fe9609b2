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

// change returns the set without removed and with added, which are not ordered.
func (s *askedSet) change(removed, added []uint32) askedSet {
	if len(removed) == 0 && len(added) == 0 {
		return *s
	}
	slices.Sort(removed)
	all := make([]uint32, 0, s.len()+len(added))
	var known []uint32
	for i, number := range s.all() {
		if _, drop := slices.BinarySearch(removed, number); drop {
			continue // the number may be that of another ask now, in added
		}
		all = append(all, number)
		if s.knownAt(i) {
			known = append(known, number)
		}
	}
	all = append(all, added...)
	slices.Sort(all)
	lows, _ := slices.BinarySearch(all, firstHigh)
	next := askedSet{numbers: numbers{low: make([]uint16, lows), high: slices.Clone(all[lows:])}}
	for i, number := range all[:lows] {
		next.low[i] = uint16(number)
	}
	for _, number := range known {
		next.setKnown(number, true)
	}
	return next
}
