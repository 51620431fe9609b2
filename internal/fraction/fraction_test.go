package fraction_test

import (
	"testing"

	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/dynxds/dynxds/internal/fraction"
)

func TestDraw(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		pb       *typepb.FractionalPercent
		from, to int // of 10,000
	}{
		{"not set", nil, 0, 0},
		{"all", &typepb.FractionalPercent{Numerator: 100}, 10_000, 10_000},
		{"more than all", &typepb.FractionalPercent{Numerator: 200}, 10_000, 10_000},
		{"half", &typepb.FractionalPercent{Numerator: 5_000, Denominator: typepb.FractionalPercent_TEN_THOUSAND}, 4_700, 5_300},
		{"a quarter", &typepb.FractionalPercent{Numerator: 250_000, Denominator: typepb.FractionalPercent_MILLION}, 2_200, 2_800},
	} {
		f, err := fraction.Parse(test.pb)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for range 10_000 {
			if f.Draw() {
				n++
			}
		}
		if n < test.from || n > test.to {
			t.Errorf("%s: %d of 10,000, want %d to %d", test.name, n, test.from, test.to)
		}
	}
	if _, err := fraction.Parse(&typepb.FractionalPercent{Denominator: 9}); err == nil {
		t.Error("an unknown denominator is accepted")
	}
}
