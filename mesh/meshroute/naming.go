package meshroute

import (
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsname"
)

// The types of a Mesh's resources.
const (
	ListenerType           = typeurl.Listener
	RouteConfigurationType = typeurl.RouteConfiguration
	ClusterType            = typeurl.Cluster
	EndpointsType          = typeurl.Endpoints
)

// naming makes the names of resources: plain ones or, with an authority, those of xRFC TP1.
type naming struct{ authority string }

// resource returns the name of a resource of a type.
func (n naming) resource(typeURL, id string) string {
	if n.authority == "" {
		return id
	}
	return xdsname.New(n.authority, typeurl.Name(typeURL), id)
}
