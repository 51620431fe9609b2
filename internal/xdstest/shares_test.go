package xdstest

import (
	"math"
	"testing"
)

// The bounds are the quantiles of 1 - 1e-9 that tables of the distribution have,
// or, as the approximation errs on that side, a little more.
func TestBoundOfChiSquared(t *testing.T) {
	t.Parallel()
	for outcomes, want := range map[int]float64{2: 37.32, 4: 44.84, 11: 62.95} {
		counts, weights := make([]int, outcomes), make([]float64, outcomes)
		for i := range counts {
			counts[i], weights[i] = 100, 1
		}
		if _, bound := chiSquared(counts, weights); bound < want-0.01 || bound > 1.26*want {
			t.Errorf("%d outcomes: the bound is %.2f, want %.2f or up to 26 %% more", outcomes, bound, want)
		}
	}
}

func TestChiSquared(t *testing.T) {
	t.Parallel()
	// (45-50)²/50 + (105-100)²/100
	if got, _ := chiSquared([]int{45, 105}, []float64{1, 2}); math.Abs(got-0.75) > 1e-9 {
		t.Errorf("the statistic is %v, want 0.75", got)
	}
}
