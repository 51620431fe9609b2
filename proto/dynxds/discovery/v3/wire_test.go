package discoveryv3_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/testing/protocmp"

	publishedv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	discoveryv3 "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// dialect are the published fields in whose place the twins have TP2's messages.
var dialect = map[protoreflect.FullName]bool{
	"envoy.service.discovery.v3.DiscoveryRequest.resource_locators":                  true,
	"envoy.service.discovery.v3.DeltaDiscoveryRequest.resource_locators_subscribe":   true,
	"envoy.service.discovery.v3.DeltaDiscoveryRequest.resource_locators_unsubscribe": true,
	"envoy.service.discovery.v3.Resource.resource_name":                              true,
	"envoy.service.discovery.v3.ResourceName.dynamic_parameter_constraints":          true,
}

// replaced are the published messages of that dialect. TP2 has its own under the
// same names.
var replaced = map[protoreflect.Name]bool{"ResourceLocator": true, "DynamicParameterConstraints": true}

// pair is a published message and its twin.
type pair struct {
	published, twin protoreflect.MessageDescriptor
}

// twins returns every published message that has a twin, in order.
func twins(t *testing.T) []pair {
	t.Helper()
	return twinsIn(t,
		publishedv3.File_envoy_service_discovery_v3_discovery_proto.Messages(),
		discoveryv3.File_dynxds_discovery_v3_discovery_proto.Messages())
}

func twinsIn(t *testing.T, published, ours protoreflect.MessageDescriptors) []pair {
	var pairs []pair
	for i := range published.Len() {
		m := published.Get(i)
		if m.IsMapEntry() || replaced[m.Name()] {
			continue
		}
		twin := ours.ByName(m.Name())
		if twin == nil {
			t.Errorf("%s has no twin", m.FullName())
			continue
		}
		pairs = append(pairs, pair{m, twin})
		pairs = append(pairs, twinsIn(t, m.Messages(), twin.Messages())...)
	}
	return pairs
}

// twinName translates the name of a published message to that of its twin.
func twinName(name protoreflect.FullName) protoreflect.FullName {
	return protoreflect.FullName(strings.Replace(string(name), "envoy.service.discovery.v3.", "dynxds.discovery.v3.", 1))
}

// Every published field is in the twin, under its number, and the twin has no other.
func TestTwinsHaveEveryPublishedField(t *testing.T) {
	t.Parallel()
	pairs := twins(t)
	if len(pairs) < 8 {
		t.Fatalf("there are only %d twins", len(pairs))
	}
	unused := map[protoreflect.FullName]bool{}
	for name := range dialect {
		unused[name] = true
	}
	for _, p := range pairs {
		for i := range p.published.Fields().Len() {
			field := p.published.Fields().Get(i)
			ours := p.twin.Fields().ByNumber(field.Number())
			switch {
			case ours == nil:
				t.Errorf("%s (%d) is not in the twin", field.FullName(), field.Number())
			case dialect[field.FullName()]:
				delete(unused, field.FullName())
			default:
				if diff := cmp.Diff(describe(field, twinName), describe(ours, same)); diff != "" {
					t.Errorf("%s (-published +twin):\n%s", field.FullName(), diff)
				}
			}
		}
		for i := range p.twin.Fields().Len() {
			if field := p.twin.Fields().Get(i); p.published.Fields().ByNumber(field.Number()) == nil {
				t.Errorf("%s (%d) is not a published field", field.FullName(), field.Number())
			}
		}
	}
	for name := range unused {
		t.Errorf("%s is not a published field", name)
	}
}

func same(name protoreflect.FullName) protoreflect.FullName { return name }

// describe returns what of a field shows on the wire or in JSON, with the names of
// its message types translated.
func describe(f protoreflect.FieldDescriptor, translate func(protoreflect.FullName) protoreflect.FullName) map[string]any {
	d := map[string]any{
		"name": f.Name(), "json": f.JSONName(), "kind": f.Kind(), "cardinality": f.Cardinality(),
		"presence": f.HasPresence(), "packed": f.IsPacked(), "map": f.IsMap(), "in a oneof": f.ContainingOneof() != nil,
	}
	switch {
	case f.IsMap():
		d["map key"], d["map value"] = describe(f.MapKey(), translate), describe(f.MapValue(), translate)
	case f.Message() != nil:
		d["message"] = translate(f.Message().FullName())
	case f.Enum() != nil:
		d["enum"] = f.Enum().FullName()
	}
	return d
}

// What a peer sends comes through a twin unchanged, byte for byte, and back.
func TestTwinsAreWireCompatible(t *testing.T) {
	t.Parallel()
	for _, p := range twins(t) {
		t.Run(string(p.published.Name()), func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(60) {
				fill := filler{rand: rand.New(rand.NewPCG(seed, 0)), everything: seed < 12, number: seed}
				original := newMessage(t, p.published)
				fill.message(original, 0)
				sent := marshal(t, original)

				twin := newMessage(t, p.twin)
				unmarshal(t, sent, twin)
				if unknown := twin.GetUnknown(); len(unknown) > 0 {
					t.Fatalf("seed %d: the twin does not know %x of %v", seed, unknown, original)
				}
				forwarded := marshal(t, twin)
				if diff := cmp.Diff(sent, forwarded); diff != "" {
					t.Fatalf("seed %d: other bytes from the twin (-sent +forwarded):\n%s", seed, diff)
				}
				received := newMessage(t, p.published)
				unmarshal(t, forwarded, received)
				if diff := cmp.Diff(original.Interface(), received.Interface(), protocmp.Transform()); diff != "" {
					t.Fatalf("seed %d (-sent +received):\n%s", seed, diff)
				}
			}
		})
	}
}

func newMessage(t *testing.T, d protoreflect.MessageDescriptor) protoreflect.Message {
	t.Helper()
	m, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		t.Fatal(err)
	}
	return m.New()
}

func marshal(t *testing.T, m protoreflect.Message) []byte {
	t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m.Interface())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func unmarshal(t *testing.T, b []byte, m protoreflect.Message) {
	t.Helper()
	if err := proto.Unmarshal(b, m.Interface()); err != nil {
		t.Fatal(err)
	}
}

// filler sets fields of a message by its descriptor: all of them, or each by chance.
type filler struct {
	rand       *rand.Rand
	everything bool
	number     uint64 // chooses among the fields of a oneof
}

// maxDepth ends the recursion of google.protobuf.Struct.
const maxDepth = 6

func (f *filler) message(m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		if dialect[field.FullName()] || field.Message() != nil && depth == maxDepth || !f.wants(field) {
			continue
		}
		switch {
		case field.IsMap():
			entries := m.Mutable(field).Map()
			for range 2 {
				value := f.value(field.MapValue(), entries.NewValue, depth)
				entries.Set(f.value(field.MapKey(), nil, depth).MapKey(), value)
			}
		case field.IsList():
			list := m.Mutable(field).List()
			for range 2 {
				list.Append(f.value(field, list.NewElement, depth))
			}
		default:
			m.Set(field, f.value(field, func() protoreflect.Value { return m.NewField(field) }, depth))
		}
	}
}

func (f *filler) wants(field protoreflect.FieldDescriptor) bool {
	if oneof := field.ContainingOneof(); oneof != nil && !oneof.IsSynthetic() {
		return oneof.Fields().Get(int(f.number)%oneof.Fields().Len()) == field
	}
	return f.everything || f.rand.IntN(2) == 0
}

func (f *filler) value(field protoreflect.FieldDescriptor, empty func() protoreflect.Value, depth int) protoreflect.Value {
	switch field.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		values := field.Enum().Values()
		return protoreflect.ValueOfEnum(values.Get(f.rand.IntN(values.Len())).Number())
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(f.rand.Int32() + 1)
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOfInt64(f.rand.Int64() + 1)
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(f.rand.Uint32() | 1)
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(f.rand.Uint64() | 1)
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(f.rand.Float32() + 1)
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(f.rand.Float64() + 1)
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(fmt.Sprintf("%s-%d", field.Name(), f.rand.Uint32()))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(fmt.Appendf(nil, "%d", f.rand.Uint32()))
	case protoreflect.MessageKind, protoreflect.GroupKind:
		value := empty()
		f.message(value.Message(), depth+1)
		return value
	}
	panic("no such kind: " + field.Kind().String())
}
