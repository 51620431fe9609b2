package access

import (
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/internal/bounds"
)

// requirement is what a rule requires of one text of a client's node.
type requirement struct {
	field field
	// key is that of the metadata.
	key  string
	want pattern
}

// field is a field of a node.
type field int

const (
	fieldID field = iota
	fieldCluster
	fieldMetadata
)

// name returns how errors name the text.
func (r *requirement) name() string {
	switch r.field {
	case fieldID:
		return "node.id"
	case fieldCluster:
		return "node.cluster"
	default:
		return "node.metadata." + r.key
	}
}

// get returns the text of a node. present is whether there is a value, which in metadata may be no text.
func (r *requirement) get(node *corepb.Node) (text string, present, isText bool) {
	switch r.field {
	case fieldID:
		return node.GetId(), node.GetId() != "", true
	case fieldCluster:
		return node.GetCluster(), node.GetCluster() != "", true
	default:
		value, present := node.GetMetadata().GetFields()[r.key]
		_, isText := value.GetKind().(*structpb.Value_StringValue)
		return value.GetStringValue(), present, isText
	}
}

func (r *requirement) set(node *corepb.Node, text string) {
	switch r.field {
	case fieldID:
		node.Id = text
	case fieldCluster:
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

// check returns the text that the requirement is for a client, up to "*", and whether its node has none, so that it is to be
// filled in; or PERMISSION_DENIED if the node has another.
func (r *requirement) check(node *corepb.Node, values map[string]string) (text string, absent bool, err error) {
	if text, err = r.want.fill(values); err != nil {
		return "", false, status.Errorf(codes.PermissionDenied, "%s: by this client's certificate, %v", r.name(), err)
	}
	got, present, isText := r.get(node)
	if !present && r.want.wild == "" {
		return text, true, nil
	}
	if isText && r.want.accepts(got, text) {
		return text, false, nil
	}
	expected := text
	if r.want.wild != "" {
		expected += "*"
	}
	return "", false, status.Errorf(codes.PermissionDenied,
		"%s is %q, and by its certificate this client is %q there: correct the node in its bootstrap, or the access rules of the xDS server (--access)",
		r.name(), bounds.Text(got, bounds.ErrorText), bounds.Text(expected, bounds.ErrorText))
}
