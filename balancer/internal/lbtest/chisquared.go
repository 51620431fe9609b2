package lbtest

import (
	"math"
	"testing"
)

// CheckShares fails the test if counts do not fit draws with probabilities in proportion to
// weights. It is wrong at most once in a billion.
func CheckShares(t testing.TB, what string, counts []int, weights ...float64) {
	t.Helper()
	if got, bound := chiSquared(counts, weights); got > bound {
		t.Errorf("%s: counts %v for weights %v: chi-squared %.1f, bound %.1f", what, counts, weights, got, bound)
	}
}

// chiSquared compares counts with the expected ones for probabilities in proportion to weights,
// all above 0. It returns the statistic, and the bound that it exceeds by chance at most about
// once in a billion tests.
func chiSquared(counts []int, weights []float64) (statistic, bound float64) {
	var n, total float64
	for i, c := range counts {
		n += float64(c)
		total += weights[i]
	}
	for i, c := range counts {
		want := n * weights[i] / total
		statistic += (float64(c) - want) * (float64(c) - want) / want
	}
	// Wilson and Hilferty: the cube root of chi-squared over its degrees of
	// freedom is close to normal. 5.998 is the normal's quantile of 1 - 1e-9.
	k := float64(len(counts) - 1)
	root := 1 - 2/(9*k) + 5.998*math.Sqrt(2/(9*k))
	return statistic, k * root * root * root
}
