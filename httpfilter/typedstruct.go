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
	var found structFaults
	read := func(value *structpb.Value) error {
		found.read += proto.Size(value)
		encoded, err := protojson.Marshal(value)
		if err != nil {
			return err
		}
		return protojson.Unmarshal(encoded, m)
	}
	whole := structpb.NewStructValue(fields)
	if err = read(whole); err == nil {
		return nil
	}
	found.most = 2*found.read + alwaysRead
	found.find("", whole, read)
	if found.Total() == 0 {
		return errors.New(withoutPosition(err)) // No single field has the error, or one behind what find may read.
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
	return typeURL, cmp.Or(fields, new(structpb.Struct)), nil
}

// structFaults collects what is wrong with the fields of a TypedStruct, by path.
// protojson itself reports only the first error, by its position in the JSON text that
// was made of the Struct.
type structFaults struct {
	faults.Faults
	// read counts the bytes that protojson was given: a single value comes with the JSON around it. find stops once read is above most.
	read, most int
}

// alwaysRead is what find may read of a small TypedStruct.
const alwaysRead = 16 << 10

// find looks into a value if its place takes one without fields or elements. read has protojson read a value alone at that place.
func (f *structFaults) find(path string, value *structpb.Value, read func(*structpb.Value) error) {
	if f.read > f.most {
		return
	}
	fields, list := value.GetStructValue().GetFields(), value.GetListValue().GetValues()
	object := func(fields map[string]*structpb.Value) error {
		return read(structpb.NewStructValue(&structpb.Struct{Fields: fields}))
	}
	array := func(items ...*structpb.Value) error {
		return read(structpb.NewListValue(&structpb.ListValue{Values: items}))
	}
	_, packed := fields["@type"] // The fields of an Any mean nothing without it.
	switch {
	case len(fields) > 0 && !packed && object(nil) == nil:
		for _, key := range slices.Sorted(maps.Keys(fields)) {
			f.find(faults.Join(path, key), fields[key], func(v *structpb.Value) error { return object(map[string]*structpb.Value{key: v}) })
		}
	case len(list) > 0 && array() == nil:
		for i, item := range list {
			f.find(fmt.Sprintf("%s[%d]", path, i), item, func(v *structpb.Value) error { return array(v) })
		}
	default:
		if err := read(value); err != nil {
			f.Add(faults.Fault{Path: path, Problem: withoutPosition(err)})
		}
	}
}

// position is what protojson begins its errors with. It varies its spaces on purpose.
var position = regexp.MustCompile(`^proto:\s*\p{Zs}*(syntax error )?(\(line \d+:\d+\): )?`)

// withoutPosition removes the position from an error of protojson: it is one in a text
// that only this package has.
func withoutPosition(err error) string { return position.ReplaceAllString(err.Error(), "") }
