package relay

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/dialect"
)

// errClosed ends streams when the relay closes. Clients go to another one.
var errClosed = status.Error(codes.Unavailable, "the xDS relay is shutting down")

// errAlone goes with resources while the management servers are unreachable.
var errAlone = func() *status.Status {
	st := status.New(codes.Unavailable, "the control plane of the xDS relay is unreachable: the relay serves what it had")
	if detailed, err := st.WithDetails(dialect.Unreachable()); err == nil {
		return detailed
	}
	return st
}()

func errInvalidNode(err error) error {
	return status.Errorf(codes.InvalidArgument, "the node of the first request is invalid: %v", err)
}

func errTooMany(err error) error {
	return status.Errorf(codes.ResourceExhausted,
		"the xDS relay has %v: have one group of clients (--one-group), or raise the limit (--max-upstreams)", err)
}

func errTooManyNames(err error) error {
	return status.Errorf(codes.ResourceExhausted,
		"the xDS relay has %v: unsubscribe from others, or raise the limit if the control plane allows more on a stream (--max-group-subscriptions)", err)
}

func errTooManyTypes() error {
	return status.Errorf(codes.ResourceExhausted, "the xDS relay forwards at most %d types of resources on one stream, those of xDS aside", maxTypes)
}

// errNotShared is in place of a member of a collection that must not be cached. The collection is
// asked for under the node of the relay, and the resource is that node's.
func errNotShared(name string) *status.Status {
	return status.Newf(codes.FailedPrecondition,
		"%q must not be cached, so the xDS relay cannot pass it on as a member of a collection: subscribe to it by its name", name)
}

// errNoWildcards ends the streams of clients that ask for a wildcard: TP3 has no errors for it, and
// without an answer they would wait for ever.
func errNoWildcards(err error) *status.Status {
	return status.Newf(codes.FailedPrecondition,
		`the xDS relay has no wildcard subscriptions, as they need the incremental protocol upstream: add "delta" to server_features in the relay's bootstrap if the control plane speaks it, or subscribe by names: %v`, err)
}
