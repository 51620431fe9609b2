// Package fraction makes random draws by Envoy's FractionalPercent: whether an RPC is
// among so many of a hundred, ten thousand or a million.
//
// It does not know what the draw is for. The percentages come from routes and from
// configurations of filters.
package fraction

import (
	"fmt"
	"math/rand/v2"

	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
)

// Fraction is a share of RPCs.
type Fraction struct{ Numerator, Denominator uint32 }

// Parse reads a FractionalPercent. nil means 0%.
func Parse(pb *typepb.FractionalPercent) (Fraction, error) {
	f := Fraction{Numerator: pb.GetNumerator(), Denominator: 100}
	switch pb.GetDenominator() {
	case typepb.FractionalPercent_HUNDRED:
	case typepb.FractionalPercent_TEN_THOUSAND:
		f.Denominator = 10_000
	case typepb.FractionalPercent_MILLION:
		f.Denominator = 1_000_000
	default:
		return f, fmt.Errorf("denominator: %v is not known", pb.GetDenominator())
	}
	f.Numerator = min(f.Numerator, f.Denominator)
	return f, nil
}

// Draw reports whether one RPC is in the share. It draws a random number only
// if that depends on one.
func (f Fraction) Draw() bool {
	return f.Numerator > 0 && (f.Numerator >= f.Denominator || rand.Uint32N(f.Denominator) < f.Numerator)
}
