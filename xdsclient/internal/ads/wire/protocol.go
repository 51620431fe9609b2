// Package wire reads and writes the messages of an ADS stream. SotW and delta are the two
// protocols, see Dialect. Responses are read without proto.Unmarshal, which copies
// each resource: an unchanged resource, as most of a SotW response is, costs no allocation.
//
// The package keeps no state, and decides nothing: the requests that are due, and the
// meaning of a response for the cache, are up to its callers.
package wire

import (
	"hash/maphash"
	"iter"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
)

// Dialect is how a server is spoken to, and behaves: the protocol, SotW or delta, and what else follows from the server's
// features. The zero value is SotW by names.
type Dialect struct {
	// Incremental says that the protocol is delta: requests and responses carry changes only. Such a
	// server keeps track of what a stream is subscribed to, expects an answer to the nonce of
	// each response, sends again what it is asked for again, names what does not exist, gives
	// each resource a version and serves collections.
	Incremental bool
	// Locators says that the server is asked for resources by name and constraints
	// (xRFC TP2), so that it chooses among their variants. Other servers go by names.
	Locators bool
}

// Request is a request for one type, of either protocol.
type Request struct {
	// Node is nil in all but the first request of a stream.
	Node    *corev3.Node
	TypeURL string
	// Version is the last version of the type that was accepted as a whole.
	Version string
	// Nonce is that of the last response for the type on this stream; in delta that of
	// the response that the request answers, or empty.
	Nonce string
	// Fault, if not empty, makes the request a NACK.
	Fault string

	// All are all subscriptions of the type. Only SotW has them, and only delta the fields below.
	All Targets
	// Subscribe and Unsubscribe are the changes since the last request for the type on
	// this stream.
	Subscribe, Unsubscribe Targets
	// Cached are the versions of the resources that the client has from this server, by
	// name. It is set in the first request for the type on a stream.
	Cached map[string]string
}

// errorDetail is what makes a request a NACK.
func (r *Request) errorDetail() *statuspb.Status {
	if r.Fault == "" {
		return nil
	}
	return &statuspb.Status{Code: int32(codes.InvalidArgument), Message: r.Fault}
}

// Response is a response for one type, of either protocol.
type Response struct {
	TypeURL string
	Version string
	Nonce   string
	// Resources, Errors and Removed iterate what the server sent, the errors it sent in
	// place of resources (xRFC TP3), and the names of what it does not have.
	// RemovedLocators has more of the latter, some with constraints (xRFC TP2); they mean
	// something only from a server that is asked for locators. What is yielded refers to the
	// bytes of the message. Each may be called again.
	Resources                iter.Seq[Resource]
	Errors                   iter.Seq[ResourceError]
	Removed, RemovedLocators iter.Seq[ResourceName]

	// beforeNonce and afterNonce are the message but for its nonce.
	beforeNonce, afterNonce []byte
}

// HasAnswers reports whether the response has a resource, or names one as removed.
func (r *Response) HasAnswers() bool {
	return !isEmpty(r.Resources) || !isEmpty(r.Removed) || !isEmpty(r.RemovedLocators)
}

// HasErrors reports whether the response has an error in place of a resource.
func (r *Response) HasErrors() bool { return !isEmpty(r.Errors) }

func isEmpty[T any](all iter.Seq[T]) bool {
	for range all {
		return false
	}
	return true
}

// Hash is the hash of the message, without the nonce.
func (r *Response) Hash(seed maphash.Seed) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	h.Write(r.beforeNonce)
	h.Write(r.afterNonce)
	return h.Sum64()
}
