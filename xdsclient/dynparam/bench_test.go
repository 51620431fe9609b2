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

func BenchmarkMatchManyRanges(b *testing.B) {
	var ranges []Range
	for i := range uint64(5_000) {
		ranges = append(ranges, Range{3 * i, 3*i + 1})
	}
	c, p := must(New(Require("shard", InRanges(ranges...)))), parameters(b, "{shard=9999}")
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

func BenchmarkFromProto(b *testing.B) {
	c, _ := five(b)
	m := c.ToProto()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := FromProto(m); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNewParameters(b *testing.B) {
	_, p := five(b)
	values := p.Map()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := NewParameters(values); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseJSON(b *testing.B) {
	c, _ := five(b)
	text := must(c.MarshalJSON())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := fromJSON(text); err != nil {
			b.Fatal(err)
		}
	}
}
