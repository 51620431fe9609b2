package interleave

import (
	"fmt"
	"testing"
)

func BenchmarkAt(b *testing.B) {
	for _, n := range []int{2, 3, 10, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			weights := make([]uint32, n)
			for i := range weights {
				weights[i] = uint32(499884 + 7*i)
			}
			w := New(weights)
			b.ReportAllocs()
			for k := uint64(0); b.Loop(); k++ {
				w.At(k)
			}
		})
	}
}
