package meshpolicy

import (
	"strings"

	"github.com/dynxds/dynxds/internal/dialect"
)

// Reserved keys of node metadata and dynamic parameters, which no tag may have.
const (
	// ServiceKey is for the name of the client's service.
	ServiceKey = "service"
	// SpecificityKey is the dynamic parameter that orders the variants that match a client.
	SpecificityKey = "specificity"
	// RoutesKey is "grpc" for a client that knows only the routes of gRFC A28.
	RoutesKey = "xds_routes"
	// AddressesKey is "ip" for a client that does not support host names of endpoints.
	AddressesKey = "xds_addresses"
	// NamespaceKey, ZoneKey and NodeKey are where a client runs: its tags NamespaceTag, ZoneTag and NodeTag. They select
	// variants of Listeners and of endpoints, as the tags select those of routes.
	NamespaceKey = "xds_namespace"
	ZoneKey      = "xds_zone"
	NodeKey      = "xds_node"
)

// The tags of clients with their zone and their node. See also NamespaceTag.
const (
	ZoneTag = "zone"
	NodeTag = "node"
)

// placeTags are the tags behind the keys of places.
var placeTags = map[string]string{NamespaceKey: NamespaceTag, ZoneKey: ZoneTag, NodeKey: NodeTag}

// The values of RoutesKey and AddressesKey.
const (
	GRPCRoutes  = "grpc"
	IPAddresses = "ip"
)

// Client describes an xDS client.
type Client struct {
	// Service is the client's own service. It may be empty.
	Service string
	// Tags are its other properties. A tag with an empty value counts as none.
	Tags map[string]string
	// Implementation decides what the client can be sent.
	Implementation dialect.Implementation
}

// Tag returns the value of a tag, or "". The reserved keys are tags too; RoutesKey and AddressesKey depend on the
// implementation.
func (c Client) Tag(key string) string {
	switch {
	case key == ServiceKey:
		return c.Service
	case key == RoutesKey && c.Implementation.IsGRPC():
		return GRPCRoutes
	case key == AddressesKey && dialect.HostNames.On(c.Implementation) == dialect.Rejects:
		return IPAddresses
	case key == RoutesKey, key == AddressesKey:
		return ""
	case placeTags[key] != "":
		return c.Tags[placeTags[key]]
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
