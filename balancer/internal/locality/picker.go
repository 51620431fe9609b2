package locality

import (
	"math/rand/v2"

	"google.golang.org/grpc/balancer"
)

// shares are the pickers of the localities in one state, by their weights: a binary tree over the
// localities of the priority, which has leaves only for those in the state. It is immutable and a picker
// itself. A locality that changes costs as many nodes as the tree is deep, so that ten thousand
// localities that connect one after the other do not cost the square of their number.
//
// A nil *shares has no locality.
type shares struct {
	// weight is that of all localities below, count their number.
	weight uint64
	count  int
	// picker is that of the locality if this is a leaf.
	picker      balancer.Picker
	left, right *shares
}

// with returns the shares of n localities with another leaf, which may be nil, for locality i.
func (s *shares) with(n, i int, leaf *shares) *shares {
	if n == 1 {
		return leaf
	}
	var left, right *shares
	if s != nil {
		left, right = s.left, s.right
	}
	if half := n / 2; i < half {
		left = left.with(half, i, leaf)
	} else {
		right = right.with(n-half, i-half, leaf)
	}
	return join(left, right)
}

// join returns a node over two sides, each of which may be nil.
func join(left, right *shares) *shares {
	s := &shares{left: left, right: right}
	for _, side := range [...]*shares{left, right} {
		if side != nil {
			s.weight += side.weight
			s.count += side.count
		}
	}
	if s.count == 0 {
		return nil
	}
	return s
}

// best returns the picker without the tree if there is only one locality to pick.
func (s *shares) best() balancer.Picker {
	if s.count > 1 {
		return s
	}
	return s.at(0).picker
}

// Pick draws a locality by weight (gRFCs A27, A28). It takes no lock and allocates nothing.
func (s *shares) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	return s.at(rand.Uint64N(s.weight)).picker.Pick(info)
}

// at returns the leaf at a place from 0 to weight-1, where the leaves stand side by side, as wide as
// their weights.
func (s *shares) at(place uint64) *shares {
	for s.picker == nil {
		switch {
		case s.left == nil:
			s = s.right
		case place < s.left.weight || s.right == nil:
			s = s.left
		default:
			place -= s.left.weight
			s = s.right
		}
	}
	return s
}
