package access

import (
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/internal/bounds"
)

// NodeWeight is about what the node of a client takes in memory.
func NodeWeight(node *corepb.Node) int64 {
	return int64(proto.Size(node)) + bounds.NodeValue*values(node.GetMetadata())
}

// values counts the values in a struct.
func values(s *structpb.Struct) (n int64) {
	for _, v := range s.GetFields() {
		n += valuesIn(v)
	}
	return n
}

func valuesIn(v *structpb.Value) (n int64) {
	n = 1 + values(v.GetStructValue())
	for _, item := range v.GetListValue().GetValues() {
		n += valuesIn(item)
	}
	return n
}
