// Package fraction makes random draws by Envoy's FractionalPercent: whether an RPC is
// among so many of a hundred, ten thousand or a million.
//
// It does not know what the draw is for. The percentages come from routes and from
// configurations of filters.
package fraction

import (
	"fmt"
	"math/rand/v2"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/dynxds/dynxds/internal/faults"
)

// Fraction is a share of RPCs.
type Fraction struct{ Numerator, Denominator uint32 }

// Parse reads a FractionalPercent. nil means 0%. The error is about the denominator.
func Parse(pb *typepb.FractionalPercent) (Fraction, error) {
	f := Fraction{Numerator: pb.GetNumerator(), Denominator: 100}
	switch pb.GetDenominator() {
	case typepb.FractionalPercent_HUNDRED:
	case typepb.FractionalPercent_TEN_THOUSAND:
		f.Denominator = 10_000
	case typepb.FractionalPercent_MILLION:
		f.Denominator = 1_000_000
	default:
		return f, fmt.Errorf("%v is not known", pb.GetDenominator())
	}
	f.Numerator = min(f.Numerator, f.Denominator)
	return f, nil
}

// Read is Parse for the field at of a configuration.
func Read(at *faults.Path, pb *typepb.FractionalPercent, found *faults.Faults) Fraction {
	f, err := Parse(pb)
	if err != nil {
		found.Addf(at.Field("denominator"), "%v", err)
	}
	return f
}

// ReadRuntime reads a RuntimeFractionalPercent by its default_value, which must be set. nil means 100%.
func ReadRuntime(at *faults.Path, pb *corepb.RuntimeFractionalPercent, found *faults.Faults) Fraction {
	if pb == nil {
		return Fraction{Numerator: 1, Denominator: 1}
	}
	at = at.Field("default_value")
	if pb.GetDefaultValue() == nil {
		found.Addf(at, "must be set")
	}
	return Read(at, pb.GetDefaultValue(), found)
}

// Draw reports whether one RPC is in the share. It draws a random number only
// if that depends on one.
func (f Fraction) Draw() bool {
	return f.Numerator > 0 && (f.Numerator >= f.Denominator || rand.Uint32N(f.Denominator) < f.Numerator)
}
