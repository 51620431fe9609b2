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

// check returns PERMISSION_DENIED if the text of a node is another one. A text that the node lacks may be filled in, if it has
// no "*".
func (r *requirement) check(node *corepb.Node, values map[string]string) error {
	name := "node." + r.field
	if r.field == "metadata" {
		name += "." + r.key
	}
	want, err := r.want.fill(values)
	if err != nil {
		return status.Errorf(codes.PermissionDenied, "%s: by this client's certificate, %v", name, err)
	}
	got, present, isText := r.get(node)
	if !present && r.want.wild == "" || isText && r.want.accepts(got, want) {
		return nil
	}
	if r.want.wild != "" {
		want += "*"
	}
	return status.Errorf(codes.PermissionDenied,
		"%s is %q, and by its certificate this client is %q there: correct the node in its bootstrap, or the access rules of the xDS server (--access)",
		name, bounds.Text(got, bounds.ErrorText), bounds.Text(want, bounds.ErrorText))
}
