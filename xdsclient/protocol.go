package xdsclient

import (
	"iter"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// protocol is a variant of the xDS transport protocol: what the messages of an
// ADS stream look like. Subscriptions, ACKs, errors and timers are the same for
// every variant and are kept by typeState. Implementations have no state.
type protocol interface {
	// method is the full name of the streaming gRPC method.
	method() string
	// encode makes the message for a request.
	encode(r *request) ([]byte, error)
	// decode reads the envelope of a response. The response refers to the bytes
	// of the message. An error means that the server does not speak the
	// protocol; faults of single resources are found when they are iterated.
	decode(message []byte) (*response, error)
}

// request is what a type has to tell the server.
type request struct {
	// node is nil in all but the first request of a stream.
	node    *corev3.Node
	typeURL string
	// version is the last version of the type that was accepted in whole.
	version string
	// nonce is that of the last response for the type on this stream.
	nonce string
	// names are all names that the type is subscribed to, in order.
	names []string
	// fault, if not empty, makes the request a NACK.
	fault string
}

// response is what a server said about a type.
type response struct {
	typeURL string
	version string
	nonce   string
	// fullState says that a subscribed resource of a type with FullStateInSotW
	// that is missing was deleted.
	fullState bool
	// resources iterates the resources. It may be called once per response and
	// holds nothing of it.
	resources iter.Seq[wireResource]
}

// wireResource is a resource as a response carries it. It refers to the bytes of
// the message.
type wireResource struct {
	// index is the place of the resource in the response.
	index int
	// name is the name that the wrapper gives, and empty for a bare resource.
	name []byte
	// value is the serialized resource.
	value []byte
	// err says why there is no value to decode.
	err error
}
