// Package secrets hides what stands in a resource and must not be shown: private keys, passwords and tokens. It finds
// them on the wire, by the descriptors of the messages, also in messages that are in an Any or a TypedStruct.
//
// What is in a message of a type that the program does not know stays as it is.
package secrets

import (
	"bytes"
	"iter"
	"sync"

	"github.com/cncf/xds/go/udpa/annotations"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/internal/protofield"
)

// Hide returns a message with "*" for each byte of its secrets, or as it is if it has none.
func Hide(a *anypb.Any) *anypb.Any {
	d := typeOf(a.GetTypeUrl())
	if !visitor(false).message(d, a.GetValue(), false) {
		return a
	}
	hidden := bytes.Clone(a.GetValue())
	visitor(true).message(d, hidden, false)
	return &anypb.Any{TypeUrl: a.GetTypeUrl(), Value: hidden}
}

// unmarked are the names of texts that are secrets although no annotation says so.
var unmarked = map[protoreflect.Name]bool{
	"access_token": true, "authorization": true, "authorization_token": true, "google_refresh_token": true, "json_key": true, "token": true,
}

// known has for a field what isSecret says: options are slow to read.
var known sync.Map

func isSecret(field protoreflect.FieldDescriptor) bool {
	secret, ok := known.Load(field)
	if !ok {
		secret = proto.HasExtension(field.Options(), annotations.E_Sensitive) || unmarked[field.Name()] && field.Kind() == protoreflect.StringKind
		known.Store(field, secret)
	}
	return secret.(bool)
}

// visitor looks for secrets, and overwrites them if it is true.
type visitor bool

// message visits a message of type d, nil if that is not known, and reports whether it has a secret. secret: it is one.
func (v visitor) message(d protoreflect.MessageDescriptor, b []byte, secret bool) (found bool) {
	if d == nil {
		return secret && v.text(b)
	}
	switch d.FullName() {
	case "google.protobuf.Any":
		return v.message(typeOf(string(fieldOf(b, 1))), fieldOf(b, 2), secret)
	case "xds.type.v3.TypedStruct", "udpa.type.v1.TypedStruct":
		return v.structure(typeOf(string(fieldOf(b, 1))), fieldOf(b, 2))
	}
	for f := range fields(b) {
		field := d.Fields().ByNumber(f.Number)
		if field == nil || f.Kind != protowire.BytesType || d.IsMapEntry() && f.Number == 1 {
			continue
		}
		secret := secret || isSecret(field)
		if field.Message() != nil {
			found = v.message(field.Message(), f.Value, secret) || found
		} else if kind := field.Kind(); kind == protoreflect.StringKind || kind == protoreflect.BytesKind {
			found = secret && v.text(f.Value) || found
		}
	}
	return found
}

// structure visits a Struct with the JSON of a message of type d.
func (v visitor) structure(d protoreflect.MessageDescriptor, b []byte) (found bool) {
	members := make(map[string][]byte)
	for f := range fields(b) {
		members[string(fieldOf(f.Value, 1))] = fieldOf(f.Value, 2)
	}
	if d != nil && d.FullName() == "google.protobuf.Any" {
		d = typeOf(string(fieldOf(members["@type"], stringValue)))
	}
	if d == nil {
		return false
	}
	for name, value := range members {
		field := d.Fields().ByJSONName(name)
		if field == nil {
			field = d.Fields().ByTextName(name)
		}
		if d.IsMapEntry() {
			field = d.Fields().ByNumber(2)
		}
		found = field != nil && v.value(field, value) || found
	}
	return found
}

// The fields of a google.protobuf.Value.
const (
	stringValue = 3
	structValue = 5
	listValue   = 6
)

// value visits a google.protobuf.Value with the JSON of a field.
func (v visitor) value(field protoreflect.FieldDescriptor, b []byte) (found bool) {
	if isSecret(field) {
		return v.message((*structpb.Value)(nil).ProtoReflect().Descriptor(), b, true)
	}
	for f := range fields(b) {
		switch {
		case f.Number == structValue && field.Message() != nil:
			found = v.structure(field.Message(), f.Value) || found
		case f.Number == listValue:
			for item := range fields(f.Value) {
				found = v.value(field, item.Value) || found
			}
		}
	}
	return found
}

func (v visitor) text(b []byte) (found bool) {
	for i := range b {
		if v {
			b[i] = '*'
		}
	}
	return len(b) > 0
}

// typeOf returns the type with that URL, or nil if the program does not know it.
func typeOf(url string) protoreflect.MessageDescriptor {
	t, err := protoregistry.GlobalTypes.FindMessageByURL(url)
	if err != nil {
		return nil
	}
	return t.Descriptor()
}

// fields iterates the fields of a message up to one that is malformed.
func fields(b []byte) iter.Seq[protofield.Field] {
	return func(yield func(protofield.Field) bool) {
		for len(b) > 0 {
			f, rest, err := protofield.Next(b)
			if b = rest; err != nil || !yield(f) {
				return
			}
		}
	}
}

// fieldOf returns the value of a field that is not repeated.
func fieldOf(b []byte, number protowire.Number) (value []byte) {
	for f := range fields(b) {
		if f.Number == number {
			value = f.Value
		}
	}
	return value
}
