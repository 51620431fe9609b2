package dynparam

import "testing"

// Five keys against five: at most 200 ns and no allocation.
func BenchmarkMatch(b *testing.B) {
	c, p := five(b)
	b.ReportAllocs()
	for b.Loop() {
		if !c.Match(p) {
			b.Fatal("the parameters do not match")
		}
	}
}
