package meshroute

import (
	"slices"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/internal/meshpolicy"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// Client is who asks. Policies select clients by Service, the name of the service that it
// is part of, and by Tags, a map[string]string in which an empty value counts as none.
// Its Implementation decides what it can be sent. Any of the three may be zero.
type Client = meshpolicy.Client

// Implementation is whose xDS client a client is. The zero value is [Dynxds].
type Implementation = meshpolicy.Implementation

// The implementations, as far as they differ in what they can be sent.
const (
	// Dynxds takes everything. Its clients say so in Node.client_features.
	Dynxds = meshpolicy.Dynxds
	// GRPCGo is the xds package of gRPC-Go.
	GRPCGo = meshpolicy.GRPCGo
	// OtherGRPC is gRPC in another language, or a client that does not say what it is.
	OtherGRPC = meshpolicy.OtherGRPC
	// Envoy takes all routes.
	Envoy = meshpolicy.Envoy
)

// implementationOf goes by what a client says of itself. One that says nothing is taken
// for one that can do the least.
func implementationOf(node *corepb.Node) Implementation {
	switch {
	case slices.Contains(node.GetClientFeatures(), bootstrap.ClientFeature):
		return Dynxds
	case node.GetUserAgentName() == "gRPC Go":
		return GRPCGo
	case node.GetUserAgentName() == "envoy":
		return Envoy
	default:
		return OtherGRPC
	}
}

// ClientFromNode returns who a node says that it is: the strings in its metadata are
// its tags, and the one called "service" is its service. Without that its cluster is.
// Its implementation is told by client_features and the user agent.
func ClientFromNode(node *corepb.Node) Client {
	c := Client{Service: node.GetCluster(), Tags: make(map[string]string), Implementation: implementationOf(node)}
	for key, value := range node.GetMetadata().GetFields() {
		text, ok := value.GetKind().(*structpb.Value_StringValue)
		switch {
		case !ok || text.StringValue == "":
		case key == meshpolicy.ServiceKey:
			c.Service = text.StringValue
		default:
			c.Tags[key] = text.StringValue
		}
	}
	return c
}
