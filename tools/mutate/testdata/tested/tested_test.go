package tested

import "testing"

func TestAtLeast(t *testing.T) {
	if atLeast(9) != "few" || atLeast(11) != "few" || atLeast(12) != "many" || total != 1 {
		t.Error("atLeast miscounts")
	}
}

var _ = unreached
