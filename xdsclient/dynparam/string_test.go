package dynparam

import (
	"maps"
	"testing"
)

func TestParameters(t *testing.T) {
	t.Parallel()
	given := map[string]string{"b": "2", "a": "1", "": "x"}
	p := must(NewParameters(given))
	for key, value := range given {
		if got, ok := p.Get(key); !ok || got != value {
			t.Errorf("%q is %q, %t", key, got, ok)
		}
	}
	if p.IsZero() {
		t.Error("the parameters are zero")
	}
	if _, ok := p.Get("aa"); ok {
		t.Error("there is a value of a key that is not there")
	}
	if !maps.Equal(p.Map(), given) {
		t.Errorf("Map returns %v", p.Map())
	}
	p.Map()["a"] = "changed"
	given["a"] = "changed"
	if value, _ := p.Get("a"); value != "1" {
		t.Error("the parameters have changed")
	}
	var none Parameters
	if _, ok := none.Get(""); ok || none.Key() != "" || none.Map() != nil || !none.IsZero() || !none.Equal(must(NewParameters(nil))) {
		t.Error("the zero value is not empty")
	}
	for _, other := range []map[string]string{nil, {"a": "1"}, {"b": "2", "a": "2", "": "x"}, {"b": "2", "a": "1", "c": "x"}} {
		if q := must(NewParameters(other)); p.Equal(q) || p.Key() == q.Key() {
			t.Errorf("%v and %v are equal", p, q)
		}
	}
	if q := must(NewParameters(map[string]string{"": "x", "a": "1", "b": "2"})); !p.Equal(q) || p.Key() != q.Key() {
		t.Errorf("%v and %v are not equal", p, q)
	}
}

// Clients choose how large the constraints are that logs and pages show.
func TestStringStopsWhereItIsCut(t *testing.T) {
	var ranges []Range
	for i := range uint64(4_000) {
		ranges = append(ranges, Range{3 * i, 3*i + 1})
	}
	c := must(New(Require("shard", InRanges(ranges...))))
	if n := testing.AllocsPerRun(10, func() { _ = c.String() }); n > 1_000 {
		t.Errorf("%v allocations for a text of %d bytes", n, len(c.String()))
	}
}
