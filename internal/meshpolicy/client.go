package meshpolicy

import "strings"

// Keys that have a meaning of their own in node metadata and among dynamic parameters.
// No tag is called so.
const (
	// ServiceKey has the name of the client's service.
	ServiceKey = "service"
	// SpecificityKey is the dynamic parameter that decides between variants that match
	// a client.
	SpecificityKey = "specificity"
	// RoutesKey is "grpc" for a client that knows only the routes of gRFC A28.
	RoutesKey = "xds_routes"
	// AddressesKey is "ip" for a client that takes no host name for an endpoint.
	AddressesKey = "xds_addresses"
)

// The values of RoutesKey and AddressesKey.
const (
	GRPCRoutes  = "grpc"
	IPAddresses = "ip"
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

// Tag returns the value of a tag, or "". The service is among them, and so are
// RoutesKey and AddressesKey, which the implementation decides.
func (c Client) Tag(key string) string {
	switch {
	case key == ServiceKey:
		return c.Service
	case key == RoutesKey && (c.Implementation == GRPCGo || c.Implementation == OtherGRPC):
		return GRPCRoutes
	case key == AddressesKey && (c.Implementation == OtherGRPC || c.Implementation == Envoy):
		return IPAddresses
	case key == RoutesKey, key == AddressesKey:
		return ""
	}
	return c.Tags[key]
}

// String returns the client as "service=frontend,version=v1".
func (c Client) String() string {
	list := pairs(c.Tags)
	if c.Service != "" {
		list = append([]string{ServiceKey + "=" + c.Service}, list...)
	}
	if len(list) == 0 {
		return "a client without tags"
	}
	return strings.Join(list, ",")
}
