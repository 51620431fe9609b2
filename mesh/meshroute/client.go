package meshroute

import (
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/internal/dialect"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
)

// Client describes an xDS client. Policies select clients by Service, the name of the client's own
// service, and by Tags, a map[string]string in which an empty value counts as none. Its Implementation
// decides what it can be sent. Any of the three may be zero.
type Client = meshpolicy.Client

// Implementation is the implementation of an xDS client. The zero value is [Dynxds].
type Implementation = dialect.Implementation

// The implementations that differ in what they can be sent.
const (
	// Dynxds supports everything. Its clients announce that in Node.client_features.
	Dynxds = dialect.Dynxds
	// GRPCGo is the xds package of gRPC-Go.
	GRPCGo = dialect.GRPCGo
	// OtherGRPC is gRPC in another language, or an unknown client.
	OtherGRPC = dialect.OtherGRPC
	// Envoy supports all routes.
	Envoy = dialect.Envoy
)

// ClientFromNode returns the client of a node: the strings in its metadata are the tags; the one named
// "service", or else the cluster, is the service; client_features and the user agent are the
// implementation.
func ClientFromNode(node *corepb.Node) Client {
	c := Client{Service: node.GetCluster(), Tags: make(map[string]string), Implementation: dialect.Of(node.GetUserAgentName(), node.GetClientFeatures())}
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
