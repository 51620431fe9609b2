package xdsclient

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// In whichever order offers come, the choice is the same, and its rival is one that it does not beat.
func TestOrderOfOffers(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	constraints := choose("a=0-5", "b=0-5")
	for range 2_000 {
		offers := make([]offered, 1+random.IntN(4))
		for i := range offers {
			p, err := dynparam.NewParameters(map[string]string{"a": fmt.Sprint(random.IntN(7)), "b": fmt.Sprint(random.IntN(7))})
			xdstest.NoError(t, err)
			offers[i] = offered{index: i, parameters: p, unreadable: random.IntN(8) == 0}
		}
		choiceOf := func() (c choice) {
			for _, o := range offers {
				c = c.with(o, constraints)
			}
			return c
		}
		one := choiceOf()
		slices.Reverse(offers)
		if other := choiceOf(); other.made != one.made || other.ambiguous != one.ambiguous || !one.unreadable && !other.parameters.Equal(one.parameters) {
			t.Fatalf("of %v in the order from behind %v is chosen, and in the other %v", offers, one, other)
		}
		if one.ambiguous && constraints.Choose([]dynparam.Parameters{one.parameters, one.rival}) != (dynparam.Choice{Index: 0, Rival: 1, Matching: 2}) {
			t.Fatalf("%v is no rival of %v", one.rival, one.parameters)
		}
	}
}
