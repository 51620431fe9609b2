package meshroute

import (
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// Resource is one xDS resource, one variant of it, or the error in its place. It is immutable.
type Resource struct {
	// TypeURL and Name are what clients subscribe to.
	TypeURL, Name string
	// Service is the service that it belongs to, or the missing one that a policy names. It is empty
	// for the Listener of a server, which may be an endpoint of several.
	Service string
	// Parameters are the dynamic parameters of a variant, zero if there is only one.
	Parameters dynparam.Parameters
	// Message is the resource. Variants with equal contents share it.
	Message proto.Message
	// Err is set if, and only if, Message is nil (xRFC TP3): NOT_FOUND for a missing service,
	// RESOURCE_EXHAUSTED for too many variants.
	Err *status.Status
}

// Key is equal only for resources of one type, one name and the same parameters.
func (r *Resource) Key() string { return r.TypeURL + "\x00" + r.Name + "\x00" + r.Parameters.Key() }
