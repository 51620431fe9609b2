package interleave

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func sum(weights []uint32) (total float64) {
	for _, w := range weights {
		total += float64(w)
	}
	return total
}

var tables = []struct {
	weights []uint32
	cycle   uint64 // the sum of the weights in lowest terms
}{
	{[]uint32{7}, 1},
	{[]uint32{1, 1}, 2},
	{[]uint32{90, 10}, 10},
	{[]uint32{1, 1, 1}, 3},
	{[]uint32{3, 2, 1}, 6},
	{[]uint32{99, 1}, 100},
	{[]uint32{1, 1000}, 1001},
	{[]uint32{500, 300, 200, 24}, 256},
	{[]uint32{7, 5, 3, 2, 1, 1}, 19},
	{[]uint32{1 << 30, 1 << 29}, 3},
	{[]uint32{499884, 500115}, 4329},
}

// Each choice gets exactly its share of every cycle, wherever the cycle starts.
func TestCyclesAreExact(t *testing.T) {
	t.Parallel()
	for _, tc := range tables {
		t.Run(fmt.Sprint(tc.weights), func(t *testing.T) {
			t.Parallel()
			w := New(tc.weights)
			if w.total != tc.cycle {
				t.Fatalf("a cycle has %d picks, want %d", w.total, tc.cycle)
			}
			start := rand.Uint64() >> 1
			picks := make([]uint64, len(tc.weights))
			for n := range tc.cycle {
				picks[w.At(start+n)]++
			}
			for i, weight := range tc.weights {
				if want := uint64(float64(tc.cycle) * float64(weight) / sum(tc.weights)); picks[i] != want {
					t.Errorf("choice %d got %d of %d picks from pick %d on, want %d", i, picks[i], tc.cycle, start, want)
				}
			}
		})
	}
}

// The weights of an incident in which two nearly equal localities got their RPCs in long runs.
func TestNearlyEqualWeightsAlternate(t *testing.T) {
	t.Parallel()
	w := New([]uint32{499884, 500115})
	start := rand.Uint64() >> 1
	repeats, last := 0, w.At(start)
	const picks = 1_000_000
	for n := uint64(1); n < picks; n++ {
		at := w.At(start + n)
		if at == last {
			repeats++
		}
		last = at
	}
	// A cycle of 4,329 picks has one more of the second choice, so it is picked twice in a row
	// that often: 231 times in 999,999 picks.
	if repeats > 232 {
		t.Errorf("%d of %d picks are of the choice picked before, want 231 or 232", repeats, picks)
	}
}

// At no moment is a choice far from its share, whatever the weights. Random numbers
// do not do that: their distance grows with the root of the number of picks.
func TestSharesAreEvenWithinACycle(t *testing.T) {
	t.Parallel()
	for _, weights := range [][]uint32{
		{700001, 200003, 100000},
		{1, 1, 1, 1, 1, 1, 1, 1_000_000},
		{1_000_000, 30, 20, 10},
		{5, 4, 3, 2, 1, 100, 99, 98, 97, 50},
		slices.Repeat([]uint32{1, 1000}, 50),
		{1, 99},
		{1, 10, 100, 1000},
		{1_000_000, 3, 3, 7},
		{65_535, 1, 65_535},
	} {
		w := New(weights)
		start := rand.Uint64() >> 1
		total := sum(weights)
		// Each level of the tree is off by less than one pick at either end of the run.
		bound := 2 * math.Ceil(math.Log2(float64(len(weights))))
		picks := make([]float64, len(weights))
		for n := 1; n <= 100_000; n++ {
			picks[w.At(start+uint64(n))]++
			for i, weight := range weights {
				if off := math.Abs(picks[i] - float64(n)*float64(weight)/total); off > bound {
					t.Fatalf("%v: choice %d is off its share by %.1f picks after %d from pick %d on", weights, i, off, n, start)
				}
			}
		}
	}
}

// The arithmetic is exact at the limits of 32 bits: the tree agrees with fractions of whole
// numbers.
func TestSlopesAreExact(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	check := func(left, right uint32, k uint64) {
		w := New([]uint32{left, right})
		divisor := gcd(uint64(left), uint64(right))
		l, total := uint64(left)/divisor, w.total
		k %= total
		want := 1
		if (k+1)*l/total > k*l/total {
			want = 0
		}
		if at := w.At(k); at != want {
			t.Fatalf("pick %d of weights %d and %d is of choice %d, want %d", k, left, right, at, want)
		}
	}
	for range 200_000 {
		left := random.Uint32N(math.MaxUint32-1) + 1
		right := random.Uint32N(math.MaxUint32-left) + 1
		for _, k := range []uint64{0, random.Uint64(), uint64(left), uint64(left) + uint64(right) - 1} {
			check(left, right, k)
		}
	}
	for _, k := range []uint64{0, 1, math.MaxUint32 / 2, math.MaxUint32 - 2, math.MaxUint32 - 1, math.MaxUint64} {
		check(1, math.MaxUint32-1, k)
		check(math.MaxUint32-1, 1, k)
		check(math.MaxUint32/2, math.MaxUint32/2+1, k)
	}
}

// Counters of picks wrap around.
func TestNumbersWrapAround(t *testing.T) {
	t.Parallel()
	w := New([]uint32{1, 2, 3})
	for n := uint64(math.MaxUint64 - 10); n != 10; n++ {
		if at := w.At(n); at < 0 || at > 2 {
			t.Fatalf("pick %d is of choice %d", n, at)
		}
	}
}

func TestAtAllocatesNothing(t *testing.T) {
	w := New([]uint32{3, 2, 1})
	if n := testing.AllocsPerRun(1000, func() { w.At(rand.Uint64()) }); n != 0 {
		t.Errorf("a pick makes %v allocations", n)
	}
}
