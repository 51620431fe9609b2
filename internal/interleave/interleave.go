// Package interleave deals picks out by weight, evenly: of any run of picks, each choice gets its
// share but for a pick or two, and of as many as the weights add up to, in lowest terms, exactly
// its share. Two choices of nearly equal weight alternate. Random numbers do none of that.
//
// It is used where each pick is independent of the others: for the localities of a priority and
// for the weighted clusters of a route.
package interleave

import (
	"math"
	"math/bits"
)

// Weights are the weights of two or more choices. They are immutable, and safe for concurrent
// use without a lock.
//
// They are a binary tree with the choices as its leaves. A node deals its picks out to its two
// sides as a line of the slope left/total is drawn on a grid: pick k goes to the left if that
// takes the left's part of the picks, rounded down, to the next integer. The number of earlier
// picks on a side is then the number of the pick on that side, so that a pick is computed from its
// number alone, in as many steps as the tree is deep.
type Weights struct {
	nodes []node // the root first; none for a single choice
	total uint64
}

// A node divides its picks between two sides.
type node struct {
	// slope is the weight of the left side divided by that of both, in units of 1/2^64, rounded
	// up. As pick numbers and weights fit 32 bits, the error never reaches the next integer.
	slope       uint64
	left, right int // a node, or a choice c as ^c
}

// New returns the Weights of choices 0 to len(weights)-1. Each weight is at least 1, and
// together they fit 32 bits. There is at least one.
func New(weights []uint32) *Weights {
	w := new(Weights)
	if len(weights) > 1 {
		w.nodes = make([]node, 0, len(weights)-1)
	}
	var divisor uint64
	for _, weight := range weights {
		divisor = gcd(uint64(weight), divisor)
	}
	_, w.total = w.build(weights, 0, divisor)
	if w.total > math.MaxUint32 {
		panic("interleave: the weights do not fit 32 bits together")
	}
	return w
}

// build adds the nodes for weights, the first of which is the weight of a choice. It returns the root
// of the nodes and the sum of the weights in lowest terms.
func (w *Weights) build(weights []uint32, choice int, divisor uint64) (root int, total uint64) {
	if len(weights) == 1 {
		return ^choice, uint64(weights[0]) / divisor
	}
	root = len(w.nodes)
	w.nodes = append(w.nodes, node{})
	half := len(weights) / 2
	left, leftTotal := w.build(weights[:half], choice, divisor)
	right, rightTotal := w.build(weights[half:], choice+half, divisor)
	total = leftTotal + rightTotal
	slope, rest := bits.Div64(leftTotal, 0, total)
	if rest > 0 {
		slope++
	}
	w.nodes[root] = node{slope: slope, left: left, right: right}
	return root, total
}

// At returns the choice for pick n. It allocates nothing.
func (w *Weights) At(n uint64) int {
	k, at := n%w.total, ^0
	if len(w.nodes) > 0 {
		at = 0
	}
	for at >= 0 {
		node := &w.nodes[at]
		before, fraction := bits.Mul64(k, node.slope)
		if _, carry := bits.Add64(fraction, node.slope, 0); carry == 1 {
			k, at = before, node.left
		} else {
			k, at = k-before, node.right
		}
	}
	return ^at
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
