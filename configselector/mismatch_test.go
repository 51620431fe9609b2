package configselector

import (
	"fmt"
	"testing"
)

// An override of another filter is logged once for each kind, and not without end.
func TestMismatchesAreToldOnce(t *testing.T) {
	t.Parallel()
	var m mismatched
	a, b := &instance{name: "a", typeURL: "t"}, &instance{name: "b", typeURL: "t"}
	for _, step := range []struct {
		in   *instance
		got  string
		want bool
	}{{a, "x", true}, {a, "x", false}, {a, "y", true}, {b, "x", true}, {b, "x", false}} {
		if got := m.tell("xds:///s", step.in, step.got); got != step.want {
			t.Errorf("%s under %q: logged: %v, want %v", step.got, step.in.name, got, step.want)
		}
	}
	for i := range 2 * maxMismatches {
		m.tell("xds:///s", a, fmt.Sprint(i))
	}
	if m.tell("xds:///s", b, "z") {
		t.Error("there is no end to it")
	}
}
