package xdsresource

import (
	"time"
	"unicode/utf8"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/internal/protofield"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// validator is the state of decoding one resource.
type validator struct {
	faults Faults
	// ignored is what is left out of the value.
	ignored ignoredList
	// trusted says that the server may set the authority of RPCs (gRFC A81).
	trusted bool
	// loads counts load for the server that sent the resource.
	loads     *load.Store
	strings   map[string]string
	forwards  map[string]*Forward
	overrides map[string]FilterOverride
	regexes   regexes
}

func newValidator(o xdsclient.DecodeOptions) *validator {
	return &validator{
		trusted: o.Server != nil && o.Server.HasFeature(bootstrap.FeatureTrustedXDSServer),
		loads:   o.Loads,
	}
}

// decode unmarshals resource into pb and, if that works, builds its value.
// The name is returned in any case, if it can be read.
func decode[M proto.Message, T any](
	resource *anypb.Any, o xdsclient.DecodeOptions, typeURL string, pb M,
	nameField string, nameOf func(M) string, build func(*validator, M) *T,
) (string, any, error) {
	v := newValidator(o)
	if !v.unmarshal(nil, resource, typeURL, pb) {
		return nameOnWire(resource.GetValue()), nil, v.err()
	}
	name := nameOf(pb)
	if name == "" {
		v.fault((*path)(nil).field(nameField), "must not be empty")
	}
	value := build(v, pb)
	if err := v.err(); err != nil {
		return name, nil, err
	}
	return name, value, nil
}

// unmarshal reads what a must contain, a message of type pb.
func (v *validator) unmarshal(at *path, a *anypb.Any, typeURL string, pb proto.Message) bool {
	if got := a.GetTypeUrl(); got != typeURL {
		v.fault(at, "has type %s, want %q", quote(got), typeURL)
		return false
	}
	// Fields that the generated code does not know are of no use to anyone
	// here, so they need not be copied.
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(a.GetValue(), pb); err != nil {
		v.fault(at, "cannot be read as %s: %v", pb.ProtoReflect().Descriptor().FullName(), err)
		return false
	}
	return true
}

// nameOnWire returns field 1 of a message that as a whole cannot be read. In
// all four resources that is the name. It returns "" if there is none.
func nameOnWire(b []byte) string {
	name := ""
	for len(b) > 0 {
		f, rest, err := protofield.Next(b)
		if err != nil {
			break
		}
		if f.Number == 1 && f.Kind == protowire.BytesType && utf8.Valid(f.Value) {
			name = string(f.Value)
		}
		b = rest
	}
	return name
}

// intern returns s, or the equal string met earlier in this resource, so that
// a name that ten thousand routes repeat is kept once.
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

// duration reads a duration that must not be negative. One that is longer
// than Go can hold becomes the longest that Go can hold, 292 years.
func (v *validator) duration(at *path, d *durationpb.Duration) time.Duration {
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

// adsOrSelf checks a source for a further resource: gRPC asks for everything
// on the stream that it has (gRFC A27).
func (v *validator) adsOrSelf(at *path, source *corepb.ConfigSource) {
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
