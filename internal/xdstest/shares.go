package xdstest

import (
	"math"
	"testing"
)

// Shares is CheckShares of counts by name. One that has no weight must not occur.
func Shares[K comparable](t testing.TB, what string, weights map[K]float64, counts map[K]int) {
	t.Helper()
	for name, n := range counts {
		if n > 0 && weights[name] == 0 {
			t.Errorf("%s: %v occurs, but has no weight: %v", what, name, counts)
		}
	}
	var list []int
	var of []float64
	for name, weight := range weights {
		list, of = append(list, counts[name]), append(of, weight)
	}
	CheckShares(t, what, list, of...)
}

// CheckShares fails the test if counts do not fit draws with probabilities in proportion to
// weights. It is wrong at most once in a billion.
func CheckShares(t testing.TB, what string, counts []int, weights ...float64) {
	t.Helper()
	if len(counts) < 2 {
		return // there is nothing to share
	}
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
