package draw_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/draw"
	"github.com/dynxds/dynxds/internal/xdstest"
)

func TestPicksAreByWeight(t *testing.T) {
	t.Parallel()
	for _, weights := range [][]uint32{
		{7}, {1, 1}, {90, 10}, {99, 1}, {500, 300, 200, 24}, {499_884, 500_115},
		{math.MaxUint32, math.MaxUint32}, {1, 10_000},
		slices.Repeat([]uint32{1}, 8), slices.Repeat([]uint32{1}, 9), slices.Repeat([]uint32{1, 1000}, 50),
	} {
		name := fmt.Sprint(weights)
		xdstest.Parallel(t, name[:min(len(name), 40)]+strings.Repeat("…", len(weights)/9), func(t *testing.T) {
			w, counts, shares := draw.New(weights), map[int]int{}, map[int]float64{}
			for i, weight := range weights {
				shares[i] = float64(weight)
			}
			for range 100_000 {
				counts[w.Pick()]++
			}
			xdstest.Shares(t, "picks", shares, counts)
		})
	}
}

func TestPickAllocatesNothing(t *testing.T) {
	w := draw.New([]uint32{3, 2, 1})
	xdstest.Equal(t, "allocations of a pick", 0, testing.AllocsPerRun(1000, func() { w.Pick() }))
}

func BenchmarkPick(b *testing.B) {
	for _, n := range []int{2, 3, 10, 100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			weights := make([]uint32, n)
			for i := range weights {
				weights[i] = uint32(499_884 + 7*i)
			}
			w := draw.New(weights)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					w.Pick()
				}
			})
		})
	}
}
