package access

import (
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/internal/bounds"
)

// NodeWeight is about what the node of a client takes in memory.
func NodeWeight(node *corepb.Node) int64 {
	return int64(proto.Size(node)) + bounds.NodeValue*values(structpb.NewStructValue(node.GetMetadata()))
}

// values counts the values in a value.
func values(of *structpb.Value) (n int64) {
	for _, v := range of.GetStructValue().GetFields() {
		n += 1 + values(v)
	}
	for _, v := range of.GetListValue().GetValues() {
		n += 1 + values(v)
	}
	return n
}
