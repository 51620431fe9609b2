// Package draw chooses at random by weight.
//
// It is for choices that are made for each RPC: the weighted clusters of a route, the localities of a
// priority, endpoints that start slowly. Draws do not depend on each other. If picks were dealt out in
// turn instead, an application that alternates two methods over two equal choices would have
// all RPCs of one method on one of them.
package draw

import (
	"math"
	"math/bits"
	"math/rand/v2"
)

// Weights are the weights of choices. They are immutable and safe for concurrent use. A pick costs the same however
// many choices there are: no lock, no counter that others write to, no allocation.
//
// They are an alias table (Walker, Vose): a pick draws one of as many columns as there are choices, all equally
// likely. A column is shared by two choices at most.
//
//	weights 1, 2, 3, mean 2:  column 0 is 1/2 for choice 0 and 1/2 for choice 2, columns 1 and 2 are for choices 1 and 2
type Weights struct {
	columns []column
}

// column is for its own choice as long as a fraction, in units of 1/2^64, is below limit, and else for other.
type column struct {
	limit uint64
	other uint32
}

// New returns the Weights of choices 0 to len(weights)-1. There is at least one, each weight is at least 1,
// and there are fewer than 2^31 choices.
func New(weights []uint32) *Weights {
	n := uint64(len(weights))
	w := &Weights{columns: make([]column, n)}
	var total uint64
	for _, weight := range weights {
		total += uint64(weight)
	}
	// A column holds total. parts are what the choices still have to be given, below total in
	// small and at least total in large.
	parts := make([]uint64, n)
	var small, large []uint32
	for i, weight := range weights {
		parts[i] = uint64(weight) * n
		w.columns[i] = column{math.MaxUint64, uint32(i)}
		if parts[i] < total {
			small = append(small, uint32(i))
		} else {
			large = append(large, uint32(i))
		}
	}
	for len(small) > 0 && len(large) > 0 {
		s, l := small[len(small)-1], large[len(large)-1]
		small = small[:len(small)-1]
		limit, _ := bits.Div64(parts[s], 0, total)
		w.columns[s] = column{limit, l}
		if parts[l] -= total - parts[s]; parts[l] < total {
			large = large[:len(large)-1]
			small = append(small, l)
		}
	}
	return w
}

// Pick returns a choice.
func (w *Weights) Pick() int {
	i, fraction := bits.Mul64(rand.Uint64(), uint64(len(w.columns)))
	if c := &w.columns[i]; fraction >= c.limit {
		return int(c.other)
	}
	return int(i)
}
