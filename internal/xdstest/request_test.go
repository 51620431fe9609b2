package xdstest_test

import (
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
)

func TestMatches_TellTheProtocolsApart(t *testing.T) {
	t.Parallel()
	full := xdstest.Request{TypeURL: "t", Names: []string{"a", "b"}}
	change := xdstest.Request{Delta: true, TypeURL: "t", Names: []string{"a", "b"}}
	tests := []struct {
		name        string
		match       xdstest.Match
		sotw, delta bool
	}{
		{"Subscribing to one", xdstest.Subscribing("t", "b"), true, true},
		{"Subscribing to another", xdstest.Subscribing("t", "a", "c"), false, false},
		{"Subscribing to another type", xdstest.Subscribing("u", "a"), false, false},
	}
	for _, tt := range tests {
		if tt.match(full) != tt.sotw || tt.match(change) != tt.delta {
			t.Errorf("%s: SotW %t, want %t; delta %t, want %t", tt.name, tt.match(full), tt.sotw, tt.match(change), tt.delta)
		}
	}
}
