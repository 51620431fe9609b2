package relay

import (
	"slices"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/dialect"
)

// nodeFor returns the node that a client is upstream. Clients with equal ones are a group.
func (o *Options) nodeFor(client *corepb.Node) *corepb.Node {
	own := o.Bootstrap.Node
	if o.OneGroup {
		n := proto.CloneOf(own)
		n.UserAgentName, n.ClientFeatures = dialect.UserAgentRelay, features(commonFeatures)
		return n
	}
	n := ownNode(client)
	n.Id = own.GetId()
	return n
}

// ownNode is a client's node for resources that are not shared.
func ownNode(client *corepb.Node) *corepb.Node {
	n := new(corepb.Node)
	proto.Merge(n, client) // which may be nil
	n.ClientFeatures = features(n.GetClientFeatures())
	return n
}

// wrappedInSotW is the client feature of resources that are wrapped in SotW. The relay understands
// them whatever its clients do.
const wrappedInSotW = "xds.config.resource-in-sotw"

// features returns client features in order, with the features of the relay's own end of the stream.
func features(of []string) []string {
	all := append([]string{wrappedInSotW, dialect.RelayFeature}, of...)
	slices.Sort(all)
	return slices.Compact(all)
}

// commonFeatures are the features of every gRPC client.
var commonFeatures = []string{"envoy.lb.does_not_support_overprovisioning"}
