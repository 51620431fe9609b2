package dynparam

import (
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	discoveryv3 "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// Whatever a peer sends, a log line stays a line.
func TestStringsAreBounded(t *testing.T) {
	t.Parallel()
	var ranges []Range
	for i := range uint64(2_000) {
		ranges = append(ranges, Range{10 * i, 10*i + 1})
	}
	long := strings.Repeat("é\n", 1000)
	texts := map[string]string{
		"many ranges":     must(New(Require("s", InRanges(ranges...)))).String(),
		"a long value":    must(New(Require(long, Value(long)), Exclude("b", Value(long), Value(long+"x")))).String(),
		"a long variant":  must(NewParameters(map[string]string{long: long, "b": long})).String(),
		"many parameters": must(NewParameters(manyParameters())).String(),
		"many keys":       must(Exact(manyParameters())).String(),
	}
	for given, text := range texts {
		if len(text) > 1100 || strings.Contains(text, "\n") || !utf8.ValidString(text) || !strings.HasPrefix(text, "{") || !strings.HasSuffix(text, "}") {
			t.Errorf("given %s: %d bytes: %s", given, len(text), text)
		}
	}
}

func manyParameters() map[string]string {
	values := map[string]string{}
	for i := range maxKeys {
		values[strings.Repeat("k", i)] = "v"
	}
	return values
}

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
	equal(t, "Map", given, p.Map())
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

// Key is what the parameters are on the wire, in a Resource.
func TestParametersOnTheWire(t *testing.T) {
	t.Parallel()
	for _, given := range []map[string]string{nil, {"": ""}, {"env": "prod", "version": "v1"}, {"long": strings.Repeat("x", 300), "": "y"}} {
		want, err := proto.MarshalOptions{Deterministic: true}.Marshal(&discoveryv3.Resource{DynamicParameters: given})
		if err != nil {
			t.Fatal(err)
		}
		if got := must(NewParameters(given)).Key(); got != string(want) {
			t.Errorf("%q is %x, want %x", given, got, want)
		}
	}
}
