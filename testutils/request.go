package testutils

import (
	"fmt"
	"slices"
	"strings"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Request is one DiscoveryRequest as a FakeServer received it.
type Request struct {
	// Stream numbers the server's streams from 1 on, across restarts.
	Stream  uint64
	TypeURL string
	// Names is resource_names, in the client's order.
	Names   []string
	Version string
	Nonce   string
	// Err is error_detail, nil if there was none.
	Err *status.Status
	// Node is nil if the request had none.
	Node *corepb.Node
	// Raw is the message itself. It must not be changed.
	Raw *discoverypb.DiscoveryRequest
}

func newRequest(stream uint64, m *discoverypb.DiscoveryRequest) Request {
	r := Request{
		Stream:  stream,
		TypeURL: m.GetTypeUrl(),
		Names:   slices.Clone(m.GetResourceNames()),
		Version: m.GetVersionInfo(),
		Nonce:   m.GetResponseNonce(),
		Node:    m.GetNode(),
		Raw:     m,
	}
	if d := m.GetErrorDetail(); d != nil {
		r.Err = status.New(codes.Code(d.GetCode()), d.GetMessage())
	}
	return r
}

// String is for failed tests.
func (r Request) String() string {
	short := r.TypeURL[strings.LastIndexByte(r.TypeURL, '.')+1:]
	s := fmt.Sprintf("stream %d: %s names=%q version=%q nonce=%q", r.Stream, short, r.Names, r.Version, r.Nonce)
	if r.Node != nil {
		s += fmt.Sprintf(" node=%q", r.Node.GetId())
	}
	if r.Err != nil {
		s += fmt.Sprintf(" error=%q", r.Err.Message())
	}
	return s
}

// Match is a predicate on requests.
type Match func(Request) bool

// AnyRequest matches every request.
func AnyRequest() Match { return func(Request) bool { return true } }

// OfType matches the requests of a type.
func OfType(typeURL string) Match {
	return func(r Request) bool { return r.TypeURL == typeURL }
}

// ForNames matches the requests of a type for exactly these names, in any
// order.
func ForNames(typeURL string, names ...string) Match {
	want := slices.Sorted(slices.Values(names))
	return func(r Request) bool {
		return r.TypeURL == typeURL && slices.Equal(slices.Sorted(slices.Values(r.Names)), want)
	}
}

// ACKOf matches the requests of a type that answer a response and accept it. A
// change of subscription repeats the nonce and matches, too.
func ACKOf(typeURL string) Match {
	return func(r Request) bool { return r.TypeURL == typeURL && r.Nonce != "" && r.Err == nil }
}

// NACKOf matches the requests of a type that reject a response.
func NACKOf(typeURL string) Match {
	return func(r Request) bool { return r.TypeURL == typeURL && r.Err != nil }
}

// OnStream matches what all of the matches do, on one stream.
func OnStream(stream uint64, matches ...Match) Match {
	return func(r Request) bool {
		return r.Stream == stream && !slices.ContainsFunc(matches, func(m Match) bool { return !m(r) })
	}
}
