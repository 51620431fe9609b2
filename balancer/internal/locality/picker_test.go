package locality

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/balancer"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// counter is a picker that counts its picks.
type counter struct{ picks atomic.Int64 }

func (c *counter) Pick(balancer.PickInfo) (balancer.PickResult, error) {
	c.picks.Add(1)
	return balancer.PickResult{}, nil
}

// inState makes the shares of n localities, of which those with a weight are in the state.
func inState(pickers []counter, weights []uint64) *shares {
	var s *shares
	for i, weight := range weights {
		if weight > 0 {
			s = s.with(len(weights), i, &shares{weight: weight, count: 1, picker: &pickers[i]})
		}
	}
	return s
}

// gRFC A27, "EDS LB Policy": RPCs go to localities by weight.
func TestPicksAreDrawnByWeight(t *testing.T) {
	t.Parallel()
	pickers := make([]counter, 5)
	s := inState(pickers, []uint64{70, 0, 20, 10, 0})
	var group sync.WaitGroup
	for range 10 {
		group.Go(func() {
			for range 1000 {
				s.best().Pick(balancer.PickInfo{})
			}
		})
	}
	group.Wait()
	counts := make([]int, len(pickers))
	for i := range pickers {
		counts[i] = int(pickers[i].picks.Load())
	}
	xdstest.CheckShares(t, "concurrent picks", []int{counts[0], counts[2], counts[3]}, 70, 20, 10)
	if counts[1]+counts[4] > 0 {
		t.Errorf("localities in other states got picks: %v", counts)
	}
}

// An application that alternates two methods, over two equal localities: each locality gets its share
// of each method.
func TestSharesHoldForEachOfTwoMethodsThatAlternate(t *testing.T) {
	t.Parallel()
	pickers := make([]counter, 2)
	s := inState(pickers, []uint64{1, 1})
	byMethod := [2][]int{make([]int, 2), make([]int, 2)}
	for i := range 10_000 {
		before := pickers[0].picks.Load()
		s.Pick(balancer.PickInfo{})
		byMethod[i%2][1-(pickers[0].picks.Load()-before)]++
	}
	for method, counts := range byMethod {
		xdstest.CheckShares(t, fmt.Sprint("method ", method), counts, 1, 1)
	}
}

func TestPickDoesNotAllocate(t *testing.T) {
	pickers := make([]counter, 100)
	weights := make([]uint64, len(pickers))
	for i := range weights {
		weights[i] = uint64(i + 1)
	}
	p := inState(pickers, weights).best()
	xdstest.Equal(t, "allocations of a pick", 0, testing.AllocsPerRun(100, func() { p.Pick(balancer.PickInfo{}) }))
}

// Whatever comes and goes, the shares are those of the localities that are there.
func TestSharesAfterChanges(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 3, 7, 100} {
		pickers, weights := make([]counter, n), make([]uint64, n)
		var s *shares
		for range 3 * n {
			i := rand.IntN(n)
			if weights[i] = rand.Uint64N(3); weights[i] == 0 {
				s = s.with(n, i, nil)
			} else {
				s = s.with(n, i, &shares{weight: weights[i], count: 1, picker: &pickers[i]})
			}
			// Each locality is as wide as its weight.
			place := uint64(0)
			for i, weight := range weights {
				for range weight {
					if s.at(place).picker != balancer.Picker(&pickers[i]) {
						t.Fatalf("%v: place %d is not of locality %d", weights, place, i)
					}
					place++
				}
			}
			if place == 0 != (s == nil) || s != nil && s.weight != place {
				t.Fatalf("%v: the shares are %+v", weights, s)
			}
		}
	}
}

// The cost of a locality that changes grows with the depth of a tree, not with the number of localities.
func TestChangeOfOneLocalityAmongMany(t *testing.T) {
	const n = 10_000
	pickers, weights := make([]counter, n), make([]uint64, n)
	for i := range weights {
		weights[i] = 1
	}
	s := inState(pickers, weights)
	leaf := &shares{weight: 5, count: 1, picker: &pickers[0]}
	if allocs := testing.AllocsPerRun(10, func() { s.with(n, n/3, leaf) }); allocs > 15 {
		t.Errorf("a change among %d localities makes %v nodes", n, allocs)
	}
}
