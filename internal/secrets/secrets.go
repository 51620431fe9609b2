// Package secrets hides the private keys, passwords and tokens in resources that are shown. It is not for resources that are used.
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

// Hide returns a resource with "*" for each byte of its private keys, passwords and tokens, or as it is if it has none. It finds
// them on the wire, by the descriptors of the messages, also in an Any. What is in a TypedStruct, or in a message of a type
// that the program does not know, stays as it is.
func Hide(a *anypb.Any) *anypb.Any {
	value := bytes.Clone(a.GetValue())
	if !hide(typeOf(a.GetTypeUrl()), value, false) {
		return a
	}
	return &anypb.Any{TypeUrl: a.GetTypeUrl(), Value: value}
}

// unmarked are the names of texts that are secrets although no annotation says so.
var unmarked = map[protoreflect.Name]bool{
	"access_token": true, "authorization": true, "authorization_token": true, "google_refresh_token": true, "json_key": true, "token": true,
}

// hide overwrites the secrets in a message or text of type d, which is nil for texts and if it is not known, and reports whether there
// are any. all says that the whole is a secret.
func hide(d protoreflect.MessageDescriptor, b []byte, all bool) (found bool) {
	if d == nil {
		if all {
			copy(b, bytes.Repeat([]byte("*"), len(b)))
		}
		return all && len(b) > 0
	}
	var url string                                              // of an Any, whose fields are in this order
	_ = protofield.Each(b, "", func(f protofield.Field) error { // what is malformed is not looked into
		field := d.Fields().ByNumber(f.Number)
		if field == nil || f.Kind != protowire.BytesType || d.IsMapEntry() && f.Number == 1 {
			return nil
		}
		of, secret := field.Message(), all
		switch {
		case d.FullName() != "google.protobuf.Any":
			secret = secret || proto.HasExtension(field.Options(), annotations.E_Sensitive) || unmarked[field.Name()] && field.Kind() == protoreflect.StringKind
		case f.Number == 1:
			url = string(f.Value)
			return nil
		default:
			of = typeOf(url)
		}
		found = hide(of, f.Value, secret) || found
		return nil
	})
	return found
}

// typeOf returns the type with that URL, or nil if the program does not know it.
func typeOf(url string) protoreflect.MessageDescriptor {
	t, err := protoregistry.GlobalTypes.FindMessageByURL(url)
	if err != nil {
		return nil
	}
	return t.Descriptor()
}
