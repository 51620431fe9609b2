package meshroute

import (
	"maps"
	"slices"
	"strings"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// ServiceKey is the key under which the name of a client's service stands, in node
// metadata and among dynamic parameters. It is not the name of a tag.
const ServiceKey = "service"

// SpecificityKey is the dynamic parameter that decides between variants that match
// a client. Clients cannot have a tag of this name.
const SpecificityKey = "specificity"

// RoutesKey and AddressesKey are dynamic parameters that keep from a client what its
// implementation would reject or misread. Clients cannot have tags of these names.
const (
	// RoutesKey is "grpc" for a client that knows only the routes of gRFC A28.
	RoutesKey = "xds_routes"
	// AddressesKey is "ip" for a client that takes no host name for an endpoint.
	AddressesKey = "xds_addresses"
)

const (
	grpcRoutes  = "grpc"
	ipAddresses = "ip"
)

// Implementation is whose xDS client a client is.
type Implementation int

// The implementations, as far as they differ in what they can be sent.
const (
	// Dynxds takes everything. Its clients say so in Node.client_features.
	Dynxds Implementation = iota
	// GRPCGo is the xds package of gRPC-Go.
	GRPCGo
	// OtherGRPC is gRPC in another language, or a client that does not say what it is.
	OtherGRPC
	// Envoy takes all routes.
	Envoy
)

// Announce makes a node say that the client is of the implementation, and returns it.
func (i Implementation) Announce(node *corepb.Node) *corepb.Node {
	switch i {
	case Dynxds:
		node.ClientFeatures = append(node.ClientFeatures, bootstrap.ClientFeature)
	case GRPCGo:
		node.UserAgentName = goUserAgent
	case Envoy:
		node.UserAgentName = envoyUserAgent
	}
	return node
}

// What clients call themselves.
const (
	goUserAgent    = "gRPC Go"
	envoyUserAgent = "envoy"
)

// implementationOf goes by what a client says of itself. One that says nothing is taken
// for one that can do the least.
func implementationOf(node *corepb.Node) Implementation {
	switch {
	case slices.Contains(node.GetClientFeatures(), bootstrap.ClientFeature):
		return Dynxds
	case node.GetUserAgentName() == goUserAgent:
		return GRPCGo
	case node.GetUserAgentName() == envoyUserAgent:
		return Envoy
	default:
		return OtherGRPC
	}
}

// Client is who asks: what policies select clients by, and what it can be sent.
type Client struct {
	// Service is the service that the client is part of. It may be empty.
	Service string
	// Tags are what else it has. A tag with an empty value counts as none.
	Tags map[string]string
	// Implementation makes a difference where not every client takes what policies and
	// services say.
	Implementation Implementation
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
		case key == ServiceKey:
			c.Service = text.StringValue
		default:
			c.Tags[key] = text.StringValue
		}
	}
	return c
}

// Tag returns the value of a tag, or "". The service is among them, and so are
// RoutesKey and AddressesKey, which the implementation decides.
func (c Client) Tag(key string) string {
	switch {
	case key == ServiceKey:
		return c.Service
	case key == RoutesKey && (c.Implementation == GRPCGo || c.Implementation == OtherGRPC):
		return grpcRoutes
	case key == AddressesKey && (c.Implementation == OtherGRPC || c.Implementation == Envoy):
		return ipAddresses
	case key == RoutesKey, key == AddressesKey:
		return ""
	}
	return c.Tags[key]
}

// String returns the client as "service=frontend,version=v1".
func (c Client) String() string {
	list := make([]string, 0, 1+len(c.Tags))
	if c.Service != "" {
		list = append(list, ServiceKey+"="+c.Service)
	}
	for _, key := range slices.Sorted(maps.Keys(c.Tags)) {
		list = append(list, key+"="+c.Tags[key])
	}
	if len(list) == 0 {
		return "a client without tags"
	}
	return strings.Join(list, ",")
}
