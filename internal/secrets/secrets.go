// Package secrets hides what stands in a resource and must not be shown: private keys, passwords and tokens. It finds
// them on the wire, by the descriptors of the messages, also in messages that are in an Any.
//
// What is in a TypedStruct, or in a message of a type that the program does not know, stays as it is.
package secrets

import (
	"bytes"

	"github.com/cncf/xds/go/udpa/annotations"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/protofield"
)

// Hide returns a message with "*" for each byte of its secrets, or as it is if it has none.
func Hide(a *anypb.Any) *anypb.Any {
	value := bytes.Clone(a.GetValue())
	if !hide(typeOf([]byte(a.GetTypeUrl())), value, false) {
		return a
	}
	return &anypb.Any{TypeUrl: a.GetTypeUrl(), Value: value}
}

// unmarked are the names of texts that are secrets although no annotation says so.
var unmarked = map[protoreflect.Name]bool{
	"access_token": true, "authorization": true, "authorization_token": true, "google_refresh_token": true, "json_key": true, "token": true,
}

func isSecret(field protoreflect.FieldDescriptor) bool {
	return proto.HasExtension(field.Options(), annotations.E_Sensitive) || unmarked[field.Name()] && field.Kind() == protoreflect.StringKind
}

// hide overwrites the secrets in a message of type d, which is nil if it is not known, and reports whether there are any. all says that
// the whole message is a secret.
func hide(d protoreflect.MessageDescriptor, b []byte, all bool) (found bool) {
	switch {
	case d == nil:
		return all && hideText(b)
	case d.FullName() == "google.protobuf.Any":
		return hide(typeOf(fieldOf(b, 1)), fieldOf(b, 2), all)
	}
	_ = protofield.Each(b, "", func(f protofield.Field) error { // what is malformed is not looked into
		field := d.Fields().ByNumber(f.Number)
		if field == nil || f.Kind != protowire.BytesType || d.IsMapEntry() && f.Number == 1 {
			return nil
		}
		secret := all || isSecret(field)
		switch kind := field.Kind(); {
		case field.Message() != nil:
			found = hide(field.Message(), f.Value, secret) || found
		case secret && (kind == protoreflect.StringKind || kind == protoreflect.BytesKind):
			found = hideText(f.Value) || found
		}
		return nil
	})
	return found
}

func hideText(b []byte) (found bool) {
	for i := range b {
		b[i] = '*'
	}
	return len(b) > 0
}

// typeOf returns the type with that URL, or nil if the program does not know it.
func typeOf(url []byte) protoreflect.MessageDescriptor {
	t, err := protoregistry.GlobalTypes.FindMessageByURL(string(url))
	if err != nil {
		return nil
	}
	return t.Descriptor()
}

// fieldOf returns the value of a field that is not repeated.
func fieldOf(b []byte, number protowire.Number) (value []byte) {
	_ = protofield.Each(b, "", func(f protofield.Field) error {
		if f.Number == number {
			value = f.Value
		}
		return nil
	})
	return value
}
