package configselector

import (
	"fmt"
	"testing"
)

// An override for another type of filter is logged once per kind, up to a bound.
func TestMismatchesAreLoggedOnce(t *testing.T) {
	t.Parallel()
	ch := NewChannel(nil, "", false, nil)
	defer ch.Close()
	for _, step := range []struct {
		name, got string
		want      bool
	}{{"a", "x", true}, {"a", "x", false}, {"a", "y", true}, {"b", "x", true}, {"b", "x", false}} {
		if got := ch.isNew(mismatch{step.name, "t", step.got}); got != step.want {
			t.Errorf("%s under %q: logged: %v, want %v", step.got, step.name, got, step.want)
		}
	}
	for i := range 2 * maxMismatches {
		ch.isNew(mismatch{"a", "t", fmt.Sprint(i)})
	}
	if ch.isNew(mismatch{"b", "t", "z"}) {
		t.Error("more than the bound is logged")
	}
}
