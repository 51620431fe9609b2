package resolver

import (
	"errors"

	"github.com/dynxds/dynxds/xdsclient"
)

// unreachable is the error that the server of a resource is unreachable.
func unreachable(resource string) error {
	return &xdsclient.Error{Kind: xdsclient.KindUnreachable, Transient: true, Resource: resource, Err: errors.New("unreachable")}
}

// late is the error that the server of a resource did not send it in time. lacking says that it would say
// so if it had no such resource (resource_timer_is_transient_error).
func late(resource string, lacking bool) error {
	return &xdsclient.Error{Kind: xdsclient.KindTimeout, Transient: lacking, Resource: resource, Err: errors.New("no answer")}
}
