package locality

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/balancer"
)

// counter is a picker that counts its picks.
type counter struct{ picks atomic.Int64 }

func (c *counter) Pick(balancer.PickInfo) (balancer.PickResult, error) {
	c.picks.Add(1)
	return balancer.PickResult{}, nil
}

func counters(weights []uint32) ([]share, []*counter) {
	var shares []share
	var all []*counter
	for _, w := range weights {
		c := new(counter)
		all = append(all, c)
		shares = append(shares, share{weight: w, picker: c})
	}
	return shares, all
}

var weightTables = []struct {
	weights []uint32
	cycle   int // the sum of the weights in lowest terms
}{
	{[]uint32{1, 1}, 2},
	{[]uint32{90, 10}, 10},
	{[]uint32{1, 1, 1}, 3},
	{[]uint32{3, 2, 1}, 6},
	{[]uint32{99, 1}, 100},
	{[]uint32{1, 1000}, 1001},
	{[]uint32{500, 300, 200, 24}, 256},
	{[]uint32{7, 5, 3, 2, 1, 1}, 19},
	{[]uint32{1 << 30, 1 << 29}, 3},
}

// gRFC A27, "EDS LB Policy": RPCs go to localities by weight. Exactly so in
// any cycle, wherever it starts.
func TestSharesAreExactInEveryCycle(t *testing.T) {
	t.Parallel()
	for _, tc := range weightTables {
		t.Run(fmt.Sprint(tc.weights), func(t *testing.T) {
			t.Parallel()
			for range 10 {
				next := new(atomic.Uint64)
				next.Store(rand.Uint64() >> 1)
				shares, all := counters(tc.weights)
				p := newPicker(shares, next)
				for range tc.cycle {
					p.Pick(balancer.PickInfo{})
				}
				var sum uint64
				for _, w := range tc.weights {
					sum += uint64(w)
				}
				for i, c := range all {
					if want := int64(tc.cycle) * int64(tc.weights[i]) / int64(sum); c.picks.Load() != want {
						t.Errorf("locality %d of %v got %d of %d picks, want %d",
							i, tc.weights, c.picks.Load(), tc.cycle, want)
					}
				}
			}
		})
	}
}

func TestSharesAreExactUnderConcurrentPicks(t *testing.T) {
	t.Parallel()
	shares, all := counters([]uint32{70, 20, 10})
	p := newPicker(shares, new(atomic.Uint64))
	var pickers sync.WaitGroup
	for range 10 {
		pickers.Go(func() {
			for range 1000 {
				p.Pick(balancer.PickInfo{})
			}
		})
	}
	pickers.Wait()
	for i, want := range []int64{7000, 2000, 1000} {
		if got := all[i].picks.Load(); got != want {
			t.Errorf("locality %d got %d of 10000 concurrent picks, want %d", i, got, want)
		}
	}
}

func TestPickAllocatesNothing(t *testing.T) {
	shares, _ := counters([]uint32{3, 2, 1})
	p := newPicker(shares, new(atomic.Uint64))
	if n := testing.AllocsPerRun(1000, func() { p.Pick(balancer.PickInfo{}) }); n != 0 {
		t.Errorf("a pick makes %v allocations", n)
	}
}
