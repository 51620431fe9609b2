package xdsclient

import (
	"iter"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// protocol is a variant of the xDS transport protocol: what the messages of an
// ADS stream look like. Subscriptions, ACKs, errors and timers are the same for
// every variant and are kept by typeState. Implementations have no state.
type protocol interface {
	// offeredBy reports whether a server is to be spoken to in this variant.
	offeredBy(server *bootstrap.Server) bool
	// method is the full name of the streaming gRPC method.
	method() string
	// incremental reports whether requests and responses carry changes only.
	// The server then keeps track of the subscriptions of a stream, answers each
	// response's nonce for itself, says what does not exist, and can serve
	// collections.
	incremental() bool
	// encode makes the message for a request.
	encode(r *request) ([]byte, error)
	// decode reads the envelope of a response. The response refers to the bytes
	// of the message. An error means that the server does not speak the
	// protocol; faults of single resources are found when they are iterated.
	decode(message []byte) (*response, error)
}

// protocols are the variants, the preferred one first. The last one is offered by
// every server.
var protocols = [...]protocol{delta{}, sotw{}}

// request is what a type has to tell the server.
type request struct {
	// node is nil in all but the first request of a stream.
	node    *corev3.Node
	typeURL string
	// version is the last version of the type that was accepted in whole.
	version string
	// nonce is that of the last response for the type on this stream; in an
	// incremental variant that of the response that the request answers, or
	// empty.
	nonce string
	// fault, if not empty, makes the request a NACK.
	fault string

	// all is what the type is subscribed to. It is not set in an incremental
	// variant, and the rest in no other.
	all targets
	// subscribe and unsubscribe are the changes since the last request for the
	// type on this stream.
	subscribe, unsubscribe targets
	// cached are the versions of the resources that the client has from this
	// server, by name. It is set in the first request for the type on a stream.
	cached map[string]string
}

// response is what a server said about a type.
type response struct {
	typeURL string
	version string
	nonce   string
	// beforeNonce and afterNonce are the message but for its nonce, and hash, if it was
	// made, is that of both. See lastResponse.
	beforeNonce, afterNonce []byte
	hash                    uint64
	// fullState says that a subscribed resource of a type with FullStateInSotW
	// that is missing was deleted.
	fullState bool
	// resources, errors and removed iterate what the server sent, the errors it
	// sent in place of resources (xRFC TP3), and the names of what it does not
	// have. removedLocators are names of the same, some with constraints (xRFC TP2);
	// they mean something only to a server that is asked for variants. None of them
	// holds anything of the response, and each may be called again.
	resources                iter.Seq[wireResource]
	errors                   iter.Seq[wireError]
	removed, removedLocators iter.Seq[wireName]
}

// wireName is what a server calls a subscription. It refers to the bytes of the
// message.
type wireName struct {
	name []byte
	// constraints are the serialized constraints of the subscription, if scoped is
	// set; else all subscriptions to the name are meant.
	constraints []byte
	scoped      bool
	// err says why the name cannot be read.
	err error
}

// wireResource is a resource as a response carries it. It refers to the bytes of
// the message.
type wireResource struct {
	// index is the place of the resource in the response.
	index int
	// name and version are those that the wrapper gives, and empty for a bare
	// resource.
	name, version []byte
	// wrapper is the wrapper if it has aliases, or nil.
	wrapper []byte
	// parameters are the serialized dynamic parameters of the wrapper, which mean
	// something only from a server that is asked for variants.
	parameters []byte
	// value is the serialized resource.
	value []byte
	// heartbeat says that the wrapper has a name and a version but no resource:
	// the server only says that it still has this version (Envoy, xDS protocol,
	// "TTL").
	heartbeat bool
	// err says why there is no value to decode.
	err error
}

// wireError is an error that a server reports for a resource. It refers to the
// bytes of the message.
type wireError struct {
	// index is the place of the error in the response.
	index int
	wireName
	code    int32
	message []byte
}
