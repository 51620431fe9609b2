package controlplane

import "slices"

// numbers is an ordered set of numbers that numbered gave out.
type numbers []uint32

// find returns the position of a number, in order, and whether it is in the set.
func (n numbers) find(number uint32) (int, bool) { return slices.BinarySearch(n, number) }

func (n numbers) has(number uint32) bool {
	_, ok := n.find(number)
	return ok
}

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

// change returns the set without removed and with added, which it sorts.
func (n numbers) change(removed, added []uint32) numbers {
	slices.Sort(removed)
	slices.Sort(added)
	next := make(numbers, 0, max(0, len(n)+len(added)-len(removed)))
	for _, number := range n {
		if numbers(removed).has(number) {
			continue // it may be that of another ask now, in added
		}
		for len(added) > 0 && added[0] < number {
			next, added = append(next, added[0]), added[1:]
		}
		next = append(next, number)
	}
	return append(next, added...)
}
