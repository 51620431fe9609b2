package tested

import "testing"

func TestAtLeast(t *testing.T) {
	if atLeast(9) != "few" || atLeast(11) != "few" || atLeast(12) != "many" || total != 1 {
		t.Error("atLeast miscounts")
	}
	if doesNotCompile(true) != "yes" {
		t.Error("doesNotCompile is wrong")
	}
}

// TestFew is needless beside TestAtLeast.
func TestFew(t *testing.T) {
	if atLeast(1) != "few" {
		t.Error("1 is not few")
	}
}

func TestEndless(t *testing.T) {
	defer func() {
		if n := recover(); n != 3 {
			t.Error("endless counted to", n)
		}
	}()
	endless(3)
}

var _ = unreached
