package xdsclient

import (
	"bytes"
	"errors"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/dynxds/dynxds/internal/protofield"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
)

// The published Envoy API has a later form of xRFC TP2 under the same field numbers:
// parameters in ResourceLocator, and in Resource (field 8) a ResourceName with the
// constraints that the resource is for. A server that speaks it does not understand the
// locators of this client, and sends variants that may be for other clients. Field 8 of the
// form of 2021-08 has dynamic parameters. Read as these, a ResourceName is one parameter
// whose key is the name of the resource, by which the published form is recognized.

// errPublished says that a server speaks the published form.
var errPublished = errors.New("the server speaks the published form of xRFC TP2 (Resource.resource_name with constraints), " +
	"and this client, by the feature dynamic_parameter_constraints, that of 2021-08 (Resource.dynamic_parameters); " +
	"remove dynamic_parameter_constraints from server_features of the server in the xDS bootstrap")

// The fields of the published DynamicParameterConstraints, which is a tree: constraint,
// or_constraints, and_constraints and not_constraints. That of 2021-08 has only field 1,
// a map entry.
const (
	publishedConstraint = 1
	publishedLast       = 4
)

// published reports whether a resource is in the published form. It sets the name of a
// resource that has one in field 8 only.
func (u *update) published(r *wire.Resource) bool {
	if len(r.Parameters) == 0 {
		return false
	}
	f, _, err := protofield.Next(r.Parameters)
	if err != nil {
		return false
	}
	n, err := wire.ParseResourceName(f.Value)
	if err != nil || len(n.Name) == 0 || !isPublishedTree(n.Constraints) {
		return false
	}
	if len(r.Name) == 0 && u.asked(n.Name) {
		r.Name = n.Name
	}
	return bytes.Equal(r.Name, n.Name) || len(r.Name) > 0 && sameName(string(r.Name), string(n.Name))
}

// hasOnly reports whether the bytes are a message all of whose fields are as expected.
func hasOnly(b []byte, expected func(f protofield.Field) bool) bool {
	for len(b) > 0 {
		f, rest, err := protofield.Next(b)
		if err != nil || !expected(f) {
			return false
		}
		b = rest
	}
	return true
}

// isPublishedTree reports whether the bytes can be a published DynamicParameterConstraints.
// The text of a dynamic parameter cannot, unless it begins with a control character or a
// quotation mark that a field of the right length follows.
func isPublishedTree(b []byte) bool {
	return hasOnly(b, func(f protofield.Field) bool { return f.Kind == protowire.BytesType && f.Number <= publishedLast })
}

// isPublishedConstraints reports whether the constraints by which a server names a
// subscription are in the published form, and not in that of 2021-08. Where the latter has
// KeyConstraints, the published form has text, or says only that the key exists (field 3).
func isPublishedConstraints(b []byte) bool {
	if len(b) == 0 || !isPublishedTree(b) {
		return false
	}
	for len(b) > 0 {
		f, rest, err := protofield.Next(b)
		if err != nil || f.Number != publishedConstraint {
			return err == nil
		}
		for entry := f.Value; len(entry) > 0; {
			part, after, err := protofield.Next(entry)
			if err != nil {
				return false
			}
			if part.Number == 3 || part.Number == 2 && !isKeyConstraints(part.Value) {
				return true
			}
			entry = after
		}
		b = rest
	}
	return false
}

// isKeyConstraints reports whether the bytes can be the KeyConstraints of the form of
// 2021-08: constraints and invert.
func isKeyConstraints(b []byte) bool {
	return hasOnly(b, func(f protofield.Field) bool { return f.Number == 2 || f.Number == 3 })
}
