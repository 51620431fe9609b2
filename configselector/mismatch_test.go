package configselector

import (
	"fmt"
	"testing"
)

// An override for another type of filter is logged once per kind, up to a bound.
func TestMismatchesAreLoggedOnce(t *testing.T) {
	t.Parallel()
	var m mismatched
	a, b := &instance{name: "a", typeURL: "t"}, &instance{name: "b", typeURL: "t"}
	for _, step := range []struct {
		in   *instance
		got  string
		want bool
	}{{a, "x", true}, {a, "x", false}, {a, "y", true}, {b, "x", true}, {b, "x", false}} {
		if got := m.log("xds:///s", step.in, step.got); got != step.want {
			t.Errorf("%s under %q: logged: %v, want %v", step.got, step.in.name, got, step.want)
		}
	}
	for i := range 2 * maxMismatches {
		m.log("xds:///s", a, fmt.Sprint(i))
	}
	if m.log("xds:///s", b, "z") {
		t.Error("more than the bound is logged")
	}
}
