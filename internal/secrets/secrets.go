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
// them on the wire, by the descriptors of the messages, also in an Any. What is in a TypedStruct, in a message of a type
// that the program does not know, or, as the stack has an end, within 1,000 messages, stays as it is.
func Hide(a *anypb.Any) *anypb.Any {
	hidden := new(anypb.Any)
	b, _ := proto.Marshal(a) // what was received can be sent
	if !hide(hidden.ProtoReflect().Descriptor(), b, false, 1000) {
		return a
	}
	_ = proto.Unmarshal(b, hidden)
	return hidden
}

// unmarked are the names of texts that are secrets although no annotation says so.
var unmarked = map[protoreflect.Name]bool{
	"access_token": true, "authorization": true, "authorization_token": true, "google_refresh_token": true, "json_key": true, "token": true,
}

// hide overwrites the secrets in a message or text of type d, which is nil for texts and if it is not known, and reports whether there
// are any. all says that the whole is a secret.
func hide(d protoreflect.MessageDescriptor, b []byte, all bool, depth int) (found bool) {
	if d == nil || depth == 0 {
		if all {
			copy(b, bytes.Repeat([]byte("*"), len(b)))
		}
		return all && len(b) > 0
	}
	// inAny is the type of an Any's value. The type_url comes first.
	var inAny protoreflect.MessageDescriptor
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
			if t, _ := protoregistry.GlobalTypes.FindMessageByURL(string(f.Value)); t != nil {
				inAny = t.Descriptor()
			}
			return nil
		default:
			of = inAny
		}
		found = hide(of, f.Value, secret, depth-1) || found
		return nil
	})
	return found
}
