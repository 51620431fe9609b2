package dynparam

import (
	"math/rand/v2"
	"strconv"
	"testing"
)

// larger is TP2's rule: of the keys whose constraint may match several values none is
// smaller in a than in b, one is larger, and the others are the same.
func larger(c Constraints, a, b Parameters) bool {
	ahead := false
	for _, k := range c.keys() {
		inA, okA := a.Get(k.key)
		inB, okB := b.Get(k.key)
		if okA == okB && inA == inB || k.matchesOne() {
			continue
		}
		numberA, errA := strconv.ParseUint(inA, 10, 64)
		numberB, errB := strconv.ParseUint(inB, 10, 64)
		if !okA || !okB || errA != nil || errB != nil || numberA <= numberB {
			return false
		}
		ahead = true
	}
	return ahead
}

// The preference is an order, reports when TP2 decides, and is the same
// whatever the order of the variants.
func TestChooseAmongRandomVariants(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 8))
	for range 3_000 {
		c := must(FromProto(randomMessage(r)))
		all := []Parameters{}
		for range 6 {
			all = append(all, must(NewParameters(randomParameters(r))))
		}
		for _, x := range all {
			for _, y := range all {
				checkPair(t, c, x, y)
				for _, z := range all {
					if above(c, x, y) && above(c, y, z) && !above(c, x, z) {
						t.Fatalf("%v: %v, %v, %v are not in order", c, x, y, z)
					}
				}
			}
		}
		checkChoice(t, c, all)
		chosen := c.Choose(all)
		shuffled := append([]Parameters(nil), all...)
		r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		again := c.Choose(shuffled)
		if (chosen.Index < 0) != (again.Index < 0) || chosen.Index >= 0 && !all[chosen.Index].Equal(shuffled[again.Index]) ||
			(chosen.Rival < 0) != (again.Rival < 0) || chosen.Matching != again.Matching {
			t.Fatalf("%v: the choice among %v is %+v, among %v it is %+v", c, all, chosen, shuffled, again)
		}
	}
}

func above(c Constraints, a, b Parameters) bool {
	order, _ := c.compare(a, b)
	return order > 0
}

func checkPair(t *testing.T, c Constraints, x, y Parameters) {
	t.Helper()
	order, decided := c.compare(x, y)
	back, decidedBack := c.compare(y, x)
	switch {
	case (order > 0) != (back < 0) || (order < 0) != (back > 0) || decided != decidedBack:
		t.Fatalf("%v: %v and %v compare to %d, the other way round to %d", c, x, y, order, back)
	case (order == 0) != x.Equal(y):
		t.Fatalf("%v: %v and %v compare to %d", c, x, y, order)
	case decided != (larger(c, x, y) || larger(c, y, x)):
		t.Fatalf("%v: that TP2 decides between %v and %v is %t", c, x, y, decided)
	case larger(c, x, y) && order < 0:
		t.Fatalf("%v: %v is preferred to %v", c, y, x)
	}
}

func checkChoice(t *testing.T, c Constraints, all []Parameters) {
	t.Helper()
	choice := c.Choose(all)
	matching, rivals := 0, 0
	for _, p := range all {
		if !c.Match(p) {
			continue
		}
		matching++
		if choice.Index < 0 || larger(c, p, all[choice.Index]) {
			t.Fatalf("%v: %+v is not the largest of %v", c, choice, all)
		}
		if !p.Equal(all[choice.Index]) && !larger(c, all[choice.Index], p) {
			rivals++
		}
	}
	if matching != choice.Matching || (rivals > 0) != (choice.Rival >= 0) {
		t.Fatalf("%v: %+v of %v, where %d match and %d are rivals", c, choice, all, matching, rivals)
	}
	if choice.Index >= 0 && !c.Match(all[choice.Index]) {
		t.Fatalf("%v: %+v of %v does not match", c, choice, all)
	}
}
