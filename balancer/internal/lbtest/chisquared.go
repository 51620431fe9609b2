package lbtest

import "math"

// ChiSquared compares counts with what they should be if outcomes came with
// probabilities in proportion to weights. It returns the statistic and the
// bound that it exceeds by chance in about one of 100,000 tests. weights are
// above 0.
func ChiSquared(counts []int, weights []float64) (statistic, bound float64) {
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
	// freedom is close to normal. 4.265 is the normal's quantile of 1 - 1e-5.
	k := float64(len(counts) - 1)
	root := 1 - 2/(9*k) + 4.265*math.Sqrt(2/(9*k))
	return statistic, k * root * root * root
}
