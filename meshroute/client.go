package meshroute

import (
	"maps"
	"slices"
	"strings"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// ServiceKey is the key under which the name of a client's service stands, in node
// metadata and among dynamic parameters. It is not the name of a tag.
const ServiceKey = "service"

// SpecificityKey is the dynamic parameter that decides between variants that match
// a client. Clients cannot have a tag of this name.
const SpecificityKey = "specificity"

// Client is who asks: what policies select clients by.
type Client struct {
	// Service is the service that the client is part of. It may be empty.
	Service string
	// Tags are what else it has. A tag with an empty value counts as none.
	Tags map[string]string
}

// ClientFromNode returns who a node says that it is: the strings in its metadata are
// its tags, and the one called "service" is its service. Without that its cluster is.
func ClientFromNode(node *corepb.Node) Client {
	c := Client{Service: node.GetCluster(), Tags: make(map[string]string)}
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

// tag returns the value of a tag, the service among them, or "".
func (c Client) tag(key string) string {
	if key == ServiceKey {
		return c.Service
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
