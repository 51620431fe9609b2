package access

import (
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/internal/bounds"
)

// requirement is what a rule requires of one text of a client's node: of its field "id" or "cluster", or of a key of its
// metadata if the field is "metadata".
type requirement struct {
	field, key string
	want       pattern
}

// complete checks the text of a node. One that the node lacks is filled in, as a text without "*" may be. It returns PERMISSION_DENIED if the node
// has another one.
func (r *requirement) complete(node *corepb.Node, values map[string]string) error {
	name := "node." + r.field
	if r.field == "metadata" {
		name += "." + r.key
	}
	want, err := r.want.fill(values)
	if err != nil {
		return status.Errorf(codes.PermissionDenied, "%s: by this client's certificate, %v", name, err)
	}
	field := map[string]*string{"id": &node.Id, "cluster": &node.Cluster}[r.field]
	value, present := node.GetMetadata().GetFields()[r.key]
	if field != nil {
		value, present = structpb.NewStringValue(*field), *field != ""
	}
	_, isText := value.GetKind().(*structpb.Value_StringValue)
	got := value.GetStringValue()
	switch {
	case !present && r.want.wild == "":
		if field != nil {
			*field = want
			return nil
		}
		if node.GetMetadata().GetFields() == nil {
			node.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{}}
		}
		node.Metadata.Fields[r.key] = structpb.NewStringValue(want)
		return nil
	case isText && r.want.accepts(got, want):
		return nil
	case r.want.wild != "":
		want += "*"
	}
	return status.Errorf(codes.PermissionDenied,
		"%s is %q, and by its certificate this client is %q there: correct the node in its bootstrap, or the access rules of the xDS server (--access)",
		name, bounds.Text(got, bounds.ErrorText), bounds.Text(want, bounds.ErrorText))
}
