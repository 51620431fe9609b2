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

// get returns the text of a node. present is whether there is a value, which in metadata may be no text.
func (r *requirement) get(node *corepb.Node) (text string, present, isText bool) {
	switch r.field {
	case "id":
		return node.GetId(), node.GetId() != "", true
	case "cluster":
		return node.GetCluster(), node.GetCluster() != "", true
	default:
		value, present := node.GetMetadata().GetFields()[r.key]
		_, isText := value.GetKind().(*structpb.Value_StringValue)
		return value.GetStringValue(), present, isText
	}
}

func (r *requirement) set(node *corepb.Node, text string) {
	switch r.field {
	case "id":
		node.Id = text
	case "cluster":
		node.Cluster = text
	default:
		if node.Metadata == nil {
			node.Metadata = new(structpb.Struct)
		}
		if node.Metadata.Fields == nil {
			node.Metadata.Fields = map[string]*structpb.Value{}
		}
		node.Metadata.Fields[r.key] = structpb.NewStringValue(text)
	}
}

// check returns what the text of a node has to be, and whether the node lacks it so that it is filled in, as a text without "*" may be; or
// PERMISSION_DENIED if it is another one.
func (r *requirement) check(node *corepb.Node, values map[string]string) (want string, lacks bool, err error) {
	name := "node." + r.field
	if r.field == "metadata" {
		name += "." + r.key
	}
	if want, err = r.want.fill(values); err != nil {
		return "", false, status.Errorf(codes.PermissionDenied, "%s: by this client's certificate, %v", name, err)
	}
	got, present, isText := r.get(node)
	if lacks = !present && r.want.wild == ""; lacks || isText && r.want.accepts(got, want) {
		return want, lacks, nil
	}
	if r.want.wild != "" {
		want += "*"
	}
	return "", false, status.Errorf(codes.PermissionDenied,
		"%s is %q, and by its certificate this client is %q there: correct the node in its bootstrap, or the access rules of the xDS server (--access)",
		name, bounds.Text(got, bounds.ErrorText), bounds.Text(want, bounds.ErrorText))
}
