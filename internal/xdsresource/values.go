package xdsresource

import (
	"strings"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/fraction"
)

// This file reads the values that resources of several types have.

// Set is a set of numbers below 32, such as status codes. The zero Set is empty.
type Set[M ~int | ~uint32] uint32

// SetOf returns the set of the members.
func SetOf[M ~int | ~uint32](members ...M) (s Set[M]) {
	for _, m := range members {
		s |= 1 << m
	}
	return s
}

// Has reports whether m, which may be any number, is in the set.
func (s Set[M]) Has(m M) bool { return s>>uint(m)&1 == 1 }

// unmarshal reads the message in a, which must have the given type, into pb. It reports
// false after an error.
func (v *validator) unmarshal(at *faults.Path, a *anypb.Any, typeURL string, pb proto.Message) bool {
	return v.hasType(at, a, typeURL) && v.read(at, a.GetValue(), pb)
}

func (v *validator) hasType(at *faults.Path, a *anypb.Any, typeURL string) bool {
	got := a.GetTypeUrl()
	if got != typeURL {
		v.fault(at, "has type %s, want %q", faults.Quote(got), typeURL)
	}
	return got == typeURL
}

// read reads a message, and notes which of its fields this client ignores. It reports false after an error.
func (v *validator) read(at *faults.Path, b []byte, pb proto.Message) bool {
	if err := proto.Unmarshal(b, pb); err != nil {
		v.fault(at, "cannot be read as %s: %v", pb.ProtoReflect().Descriptor().FullName(), err)
		return false
	}
	if !v.noted {
		v.noteUnused(at, pb.ProtoReflect())
	}
	return true
}

// intern returns s, or an equal string seen earlier in this resource, so that a name that
// ten thousand routes repeat is in memory once.
func (v *validator) intern(s string) string {
	if kept, ok := v.strings[s]; ok {
		return kept
	}
	if v.strings == nil {
		v.strings = make(map[string]string)
	}
	v.strings[s] = s
	return s
}

// headerName reads the name of a header to look up.
func (v *validator) headerName(at *faults.Path, name string) string {
	return v.intern(strings.ToLower(v.notEmpty(at, name)))
}

// notEmpty reads a text that must not be empty.
func (v *validator) notEmpty(at *faults.Path, text string) string {
	if text == "" {
		v.fault(at, "must not be empty")
	}
	return text
}

// duration reads a duration that must not be negative. One longer than a time.Duration can
// hold becomes the longest that it can, 292 years.
func (v *validator) duration(at *faults.Path, d *durationpb.Duration) time.Duration {
	if d == nil {
		return 0
	}
	if err := d.CheckValid(); err != nil {
		v.fault(at, "is not a valid duration: seconds: %d, nanos: %d", d.GetSeconds(), d.GetNanos())
		return 0
	}
	if d.AsDuration() < 0 {
		v.fault(at, "is negative: %v", d.AsDuration())
		return 0
	}
	return d.AsDuration()
}

// positive reads a duration that must be set and above 0.
func (v *validator) positive(at *faults.Path, pb *durationpb.Duration) time.Duration {
	if pb == nil {
		v.fault(at, "must be set")
		return 0
	}
	d := v.duration(at, pb)
	if d == 0 && pb.GetSeconds() == 0 && pb.GetNanos() == 0 {
		v.fault(at, "must be above 0")
	}
	return d
}

func (v *validator) durationOr(at *faults.Path, pb *durationpb.Duration, otherwise time.Duration) time.Duration {
	if pb == nil {
		return otherwise
	}
	return v.duration(at, pb)
}

// percent reads a share in percent.
func (v *validator) percent(at *faults.Path, percent float64) float64 {
	if !(percent >= 0 && percent <= 100) { // NaN is neither
		v.fault(at, "must be from 0 to 100, is %v", percent)
	}
	return percent
}

func (v *validator) percentOr(at *faults.Path, pb *wrapperspb.UInt32Value, otherwise uint32) uint32 {
	n := numberOr(pb, otherwise)
	if n > 100 {
		v.fault(at, "must be at most 100, is %d", n)
	}
	return n
}

func numberOr(pb *wrapperspb.UInt32Value, otherwise uint32) uint32 {
	if pb == nil {
		return otherwise
	}
	return pb.GetValue()
}

// perMillion reads a share, in parts per million. More than 100% is 100%.
func (v *validator) perMillion(at *faults.Path, pb *typepb.FractionalPercent) uint32 {
	share, err := fraction.Parse(pb)
	if err != nil {
		v.fault(at.Field("denominator"), "is the unknown value %d", pb.GetDenominator())
	}
	return share.Numerator * (Million / share.Denominator)
}

// runtimeFraction reads the share of RPCs that something applies to, in parts per million.
// It returns nil after an error.
func (v *validator) runtimeFraction(at *faults.Path, pb *corepb.RuntimeFractionalPercent) *uint32 {
	at = at.Field("default_value")
	if pb.GetDefaultValue() == nil {
		v.fault(at, "must be set; this client has no runtime to look up runtime_key in")
		return nil
	}
	share := v.perMillion(at, pb.GetDefaultValue())
	return &share
}

// adsOrSelf checks the source of another resource: gRPC gets all resources over its ADS
// stream (gRFC A27).
func (v *validator) adsOrSelf(at *faults.Path, source *corepb.ConfigSource) {
	switch source.GetConfigSourceSpecifier().(type) {
	case *corepb.ConfigSource_Ads, *corepb.ConfigSource_Self:
	default:
		v.fault(at, "must be ads or self, is %s", whichOneof(source, "config_source_specifier"))
	}
}

// whichOneof names the member of a oneof that is set, as the proto file does.
func whichOneof(m proto.Message, oneof protoreflect.Name) string {
	fields := m.ProtoReflect()
	if f := fields.WhichOneof(fields.Descriptor().Oneofs().ByName(oneof)); f != nil {
		return string(f.Name())
	}
	return "not set"
}
