package httpfilter

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	udpapb "github.com/cncf/xds/go/udpa/type/v1"
	xdspb "github.com/cncf/xds/go/xds/type/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/typeurl"
)

// UnmarshalConfig reads a configuration into m: a message of m's own type, or
// a TypedStruct (udpa.type.v1 or xds.type.v3) that stands for it, whose fields
// are those of m's JSON form. The error for such fields names each that m does
// not have, or that does not have m's type, by its path.
func UnmarshalConfig(config *anypb.Any, m proto.Message) error {
	typeURL, fields, err := TypedStruct(config)
	switch {
	case err != nil:
		return err
	case fields == nil:
		return config.UnmarshalTo(m)
	}
	if want := m.ProtoReflect().Descriptor().FullName(); (&anypb.Any{TypeUrl: typeURL}).MessageName() != want {
		return fmt.Errorf("the TypedStruct stands for %q, want %q", typeURL, want)
	}
	if err = unmarshalJSON(fields, m); err == nil {
		return nil
	}
	var found structFaults
	found.message("", fields, m.ProtoReflect().New())
	if found.Total() == 0 {
		return errors.New(withoutPosition(err)) // It is not the fault of one field.
	}
	return errors.New(found.Join("; "))
}

// TypedStruct returns the type URL of a configuration. If that is a TypedStruct
// (udpa.type.v1 or xds.type.v3), the type is that which it stands for, as a type URL
// even if it has only the name, and fields has its fields; otherwise fields is nil.
func TypedStruct(config *anypb.Any) (typeURL string, fields *structpb.Struct, err error) {
	var s interface {
		proto.Message
		GetTypeUrl() string
		GetValue() *structpb.Struct
	}
	switch config.MessageName() {
	case "xds.type.v3.TypedStruct":
		s = new(xdspb.TypedStruct)
	case "udpa.type.v1.TypedStruct":
		s = new(udpapb.TypedStruct)
	default:
		return config.GetTypeUrl(), nil, nil
	}
	if err := config.UnmarshalTo(s); err != nil {
		return "", nil, fmt.Errorf("cannot be read as %s: %w", config.MessageName(), err)
	}
	typeURL, fields = s.GetTypeUrl(), s.GetValue()
	if typeURL != "" && !strings.Contains(typeURL, "/") {
		typeURL = typeurl.Prefix + typeURL
	}
	if fields == nil {
		fields = new(structpb.Struct)
	}
	return typeURL, fields, nil
}

func unmarshalJSON(fields *structpb.Struct, m proto.Message) error {
	encoded, err := protojson.Marshal(fields)
	if err != nil {
		return err
	}
	return protojson.Unmarshal(encoded, m)
}

// structFaults collects what is wrong with the fields of a TypedStruct, by path.
// protojson itself reports only the first error, by its position in the JSON text that
// was made of the Struct.
type structFaults struct{ faults.Faults }

// message looks at the fields of a message. m is an empty one.
func (f *structFaults) message(path string, value *structpb.Struct, m protoreflect.Message) {
	for _, key := range slices.Sorted(maps.Keys(value.GetFields())) {
		field := cmp.Or(m.Descriptor().Fields().ByJSONName(key), m.Descriptor().Fields().ByTextName(key))
		if field == nil {
			f.Add(faults.Fault{Path: path + key, Problem: string(m.Descriptor().FullName()) + " has no such field"})
			continue
		}
		f.field(path+key, key, field, value.GetFields()[key], m)
	}
}

// field looks at one field of m. What it can, it looks into; for all the rest it
// asks protojson whether that field alone can be read.
func (f *structFaults) field(path, key string, field protoreflect.FieldDescriptor, value *structpb.Value, m protoreflect.Message) {
	if isPlainMessage(field) {
		switch list, object := value.GetListValue(), value.GetStructValue(); {
		case field.IsList() && list != nil:
			for i, item := range list.GetValues() {
				at := fmt.Sprintf("%s[%d]", path, i)
				if object := item.GetStructValue(); object != nil {
					f.message(at+".", object, m.NewField(field).List().NewElement().Message())
					continue
				}
				f.alone(at, key, structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{item}}), m)
			}
			return
		case !field.IsList() && object != nil:
			f.message(path+".", object, m.NewField(field).Message())
			return
		}
	}
	f.alone(path, key, value, m)
}

func (f *structFaults) alone(path, key string, value *structpb.Value, m protoreflect.Message) {
	one := &structpb.Struct{Fields: map[string]*structpb.Value{key: value}}
	if err := unmarshalJSON(one, m.New().Interface()); err != nil {
		f.Add(faults.Fault{Path: path, Problem: withoutPosition(err)})
	}
}

// isPlainMessage reports whether a field has messages whose JSON form is that of
// their fields.
func isPlainMessage(field protoreflect.FieldDescriptor) bool {
	return field.Message() != nil && !field.IsMap() && field.Message().ParentFile().Package() != "google.protobuf"
}

// position is what protojson begins its errors with. It varies its spaces on purpose.
var position = regexp.MustCompile(`^proto:\s*\p{Zs}*(syntax error )?(\(line \d+:\d+\): )?`)

// withoutPosition removes the position from an error of protojson: it is one in a text
// that only this package has.
func withoutPosition(err error) string { return position.ReplaceAllString(err.Error(), "") }
