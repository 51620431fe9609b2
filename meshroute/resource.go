package meshroute

import (
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// Resource is one xDS resource, or one variant of it, or the error in its place. It
// is immutable, and the same pointer in all builds in which it is the same.
type Resource struct {
	// TypeURL and Name are what clients subscribe to.
	TypeURL, Name string
	// Parameters tell the variants of a RouteConfiguration apart. They are zero for
	// everything that has one variant only.
	Parameters dynparam.Parameters
	// Message is the resource. Variants with equal contents share it.
	Message proto.Message
	// Err is set if, and only if, Message is nil: NOT_FOUND for what refers to a
	// service that the mesh does not have, PERMISSION_DENIED for a Denial,
	// RESOURCE_EXHAUSTED for too many variants (xRFC TP3).
	Err *status.Status
}

// key tells the resources of a Mesh apart.
func (r *Resource) key() resourceKey {
	return resourceKey{r.TypeURL, r.Name, r.Parameters.Key()}
}

type resourceKey struct{ typeURL, name, parameters string }
