package dynparam

import (
	"cmp"
	"strings"
)

// TP2 ranks variants that match in one case only: where "a constraint may match multiple
// values (e.g., a range constraint), the largest possible matching value is preferred". This
// compares integers. Where several keys have such constraints, a variant is preferred if it
// is larger in one of them and smaller in none. Keys whose constraint matches one value only
// do not count, whether a variant has the key or not.
//
// What TP2 leaves open ("free to pick one of the variants at random") is decided by a fixed
// order, so that the answer is always the same, and is reported:
//
//   - Of the constrained keys, the first in which the variants differ decides; those whose
//     constraint may match several values come first, and each group is sorted by key. An
//     integer wins over other text, the larger of two over the smaller, and any value over
//     none, since the client asked for the key.
//   - Then the first of the other keys in which they differ decides, in the reverse order: a
//     client that does not ask for a key more likely wants a variant that is older than the
//     key or its later values.

// Choice is the outcome of Choose.
type Choice struct {
	// Index is the chosen variant, or -1 if none matches.
	Index int
	// Rival is the first other variant that matches and that TP2 does not rank below the
	// chosen one, or -1. If there is one, another implementation might have chosen it: the
	// deployment breaks one of TP2's best practices.
	Rival int
	// Matching counts the variants that match.
	Matching int
}

// Choose returns the variant that a subscription to a single resource gets, of all variants
// of that resource. The choice does not depend on their order; of equal ones it is the
// first. (A subscription to a glob collection gets all variants that match.) It does not
// allocate.
func (c Constraints) Choose(variants []Parameters) Choice {
	choice := Choice{Index: -1, Rival: -1}
	for i, candidate := range variants {
		if !c.Match(candidate) {
			continue
		}
		choice.Matching++
		if choice.Index < 0 {
			choice.Index = i
		} else if order, _ := c.compare(candidate, variants[choice.Index]); order > 0 {
			choice.Index = i
		}
	}
	if choice.Matching < 2 {
		return choice
	}
	for i, other := range variants {
		if order, decided := c.compare(variants[choice.Index], other); order != 0 && !decided && c.Match(other) {
			choice.Rival = i
			break
		}
	}
	return choice
}

// compare returns which of two variants that match is preferred: a positive number for a,
// a negative one for b, and 0 only if they are equal. decided reports whether TP2 says so
// itself; if not, the order is ours (see Choice.Rival).
func (c Constraints) compare(a, b Parameters) (order int, decided bool) {
	// one is the order by keys whose constraint matches one value only.
	one, ahead, behind, open := 0, false, false, false
	restA, restB := a.list(), b.list()
	for _, k := range c.keys() {
		var inA, inB *parameter
		inA, restA = seek(restA, k.key)
		inB, restB = seek(restB, k.key)
		switch o := compareValues(inA, inB); {
		case o == 0:
		case k.matchesOne():
			one = cmp.Or(one, o)
		default:
			order = cmp.Or(order, o)
			ahead, behind = ahead || o > 0, behind || o < 0
			open = open || !decides(inA, inB)
		}
	}
	switch {
	case order != 0:
		return order, !open && ahead != behind
	case one != 0:
		return one, false
	}
	// Here the variants differ in none of the constrained keys.
	return compareLists(b.list(), a.list()), false
}

// compareLists compares the first key in which the variants differ.
func compareLists(a, b []parameter) int {
	for len(a) > 0 && len(b) > 0 && a[0].key == b[0].key {
		if order := compareValues(&a[0], &b[0]); order != 0 {
			return order
		}
		a, b = a[1:], b[1:]
	}
	switch { // One of them has the next key alone, if there is one.
	case len(a) == 0:
		return -min(len(b), 1)
	case len(b) == 0 || a[0].key < b[0].key:
		return 1
	default:
		return -1
	}
}

// compareValues puts the values of one key in order: none, text, integers.
func compareValues(a, b *parameter) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil || b != nil && !a.integer && b.integer:
		return -1
	case b == nil || a.integer && !b.integer:
		return 1
	}
	return cmp.Or(cmp.Compare(a.number, b.number), strings.Compare(a.value, b.value))
}

// decides reports whether one of the values is larger in the sense of TP2.
func decides(a, b *parameter) bool {
	return a != nil && b != nil && a.integer && b.integer && a.number != b.number
}
