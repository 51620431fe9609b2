package dynparam

import (
	"fmt"
	"testing"
)

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

func BenchmarkChooseAmong100(b *testing.B) {
	c := must(New(Require("shard", InRanges(AtMost(1_000)))))
	var all []Parameters
	for i := range 100 {
		all = append(all, parameters(b, fmt.Sprintf("{env=prod,shard=%d}", i)))
	}
	b.ReportAllocs()
	for b.Loop() {
		if c.Choose(all).Index != 99 {
			b.Fatal("another variant was chosen")
		}
	}
}
