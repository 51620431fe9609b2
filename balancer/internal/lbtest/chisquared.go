package lbtest

import (
	"math"
	"testing"
)

// CheckShares fails the test if counts are not what draws with probabilities in
// proportion to weights give. Of right ones, at most one in a billion fails.
func CheckShares(t testing.TB, what string, counts []int, weights ...float64) {
	t.Helper()
	if got, bound := chiSquared(counts, weights); got > bound {
		t.Errorf("%s: counts %v for weights %v: chi-squared %.1f, bound %.1f", what, counts, weights, got, bound)
	}
}

// chiSquared compares counts with what they should be if outcomes came with
// probabilities in proportion to weights. It returns the statistic and the
// bound that it exceeds by chance in at most about one of a billion tests. weights are
// above 0.
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
