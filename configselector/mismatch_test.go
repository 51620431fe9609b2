package configselector

import (
	"fmt"
	"testing"

	"github.com/dynxds/dynxds/internal/filterchain"
)

// An override for another type of filter is logged once per kind, up to a bound.
func TestMismatchesAreLoggedOnce(t *testing.T) {
	t.Parallel()
	var m mismatched
	a, b := &filterchain.Instance{Name: "a", Type: "t"}, &filterchain.Instance{Name: "b", Type: "t"}
	for _, step := range []struct {
		in   *filterchain.Instance
		got  string
		want bool
	}{{a, "x", true}, {a, "x", false}, {a, "y", true}, {b, "x", true}, {b, "x", false}} {
		if got := m.log("xds:///s", step.in, step.got); got != step.want {
			t.Errorf("%s under %q: logged: %v, want %v", step.got, step.in.Name, got, step.want)
		}
	}
	for i := range 2 * maxMismatches {
		m.log("xds:///s", a, fmt.Sprint(i))
	}
	if m.log("xds:///s", b, "z") {
		t.Error("more than the bound is logged")
	}
}
