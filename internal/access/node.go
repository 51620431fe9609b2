package access

import (
	"maps"
	"slices"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/internal/bounds"
)

// nodeRule is what a rule requires of a node. Fields that are nil are not looked at.
type nodeRule struct {
	id, cluster *pattern
	// metadata has patterns of texts by their keys.
	metadata map[string]pattern
}

// check returns the node that the client is by one of its names, or PERMISSION_DENIED.
func (r *nodeRule) check(node *corepb.Node, found []map[string]string) (is *corepb.Node, err error) {
	for _, values := range found {
		if is, err = r.checkOne(node, values); err == nil {
			return is, nil
		}
	}
	return nil, err
}

func (r *nodeRule) checkOne(node *corepb.Node, values map[string]string) (*corepb.Node, error) {
	is := node
	// own makes is a node that may be changed.
	own := func() *corepb.Node {
		switch is {
		case nil:
			is = new(corepb.Node)
		case node:
			is = proto.CloneOf(node)
		}
		return is
	}
	if r.id != nil {
		if got := node.GetId(); got == "" && !r.id.prefix {
			own().Id = r.id.fill(values)
		} else if !r.id.accepts(got, values) {
			return nil, errNode("id", got, *r.id, values)
		}
	}
	if r.cluster != nil {
		if got := node.GetCluster(); got == "" && !r.cluster.prefix {
			own().Cluster = r.cluster.fill(values)
		} else if !r.cluster.accepts(got, values) {
			return nil, errNode("cluster", got, *r.cluster, values)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(r.metadata)) {
		want := r.metadata[key]
		got, present := node.GetMetadata().GetFields()[key]
		if !present && !want.prefix {
			n := own()
			if n.Metadata == nil {
				n.Metadata = new(structpb.Struct)
			}
			if n.Metadata.Fields == nil {
				n.Metadata.Fields = map[string]*structpb.Value{}
			}
			n.Metadata.Fields[key] = structpb.NewStringValue(want.fill(values))
			continue
		}
		if text, ok := got.GetKind().(*structpb.Value_StringValue); !ok || !want.accepts(text.StringValue, values) {
			return nil, errNode("metadata."+key, got.GetStringValue(), want, values)
		}
	}
	return is, nil
}

func errNode(field, got string, want pattern, values map[string]string) error {
	expected := want.fill(values)
	if want.prefix {
		expected += "*"
	}
	return status.Errorf(codes.PermissionDenied,
		"node.%s is %q, and by its certificate or token this client is %q there: correct the node in its bootstrap, or the access rules of the xDS server (--access)",
		field, bounds.Text(got, bounds.ErrorText), bounds.Text(expected, bounds.ErrorText))
}
