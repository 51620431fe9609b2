package xdstest

import (
	"fmt"
	"slices"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// Request is one DiscoveryRequest or DeltaDiscoveryRequest as a server
// received it.
type Request struct {
	// Stream numbers the server's streams from 1 on, across restarts and
	// protocols.
	Stream uint64
	// Delta says that the stream speaks delta; otherwise it speaks SotW.
	Delta   bool
	TypeURL string
	// Names and Locators are what it asks for, in the client's order: all subscriptions in SotW, new ones in delta. A locator
	// whose constraints cannot be used has none.
	Names    []string
	Locators []testutils.Locator
	Nonce    string
	// Err is error_detail, nil if there was none.
	Err *status.Status
	// Node is nil if the request had none.
	Node *corepb.Node

	message proto.Message
}

// request is what the messages of both protocols have in common.
type request interface {
	proto.Message
	GetTypeUrl() string
	GetResponseNonce() string
	GetNode() *corepb.Node
	GetErrorDetail() *statuspb.Status
}

// read reads a message that was received into one with the same fields. The server may have wrapped it in a message of its own.
func (r *Request) read(received protoreflect.Message, m request) {
	bytes, err := proto.Marshal(received.Interface())
	if err == nil {
		err = proto.Unmarshal(bytes, m)
	}
	if err != nil {
		panic(err) // it was received
	}
	r.message, r.TypeURL, r.Nonce, r.Node = m, m.GetTypeUrl(), m.GetResponseNonce(), m.GetNode()
	if detail := m.GetErrorDetail(); detail != nil {
		r.Err = status.FromProto(detail)
	}
	var locators []*discoverypb.ResourceLocator
	switch m := m.(type) {
	case *discoverypb.DiscoveryRequest:
		r.Names, locators = m.GetResourceNames(), m.GetResourceLocators()
	case *discoverypb.DeltaDiscoveryRequest:
		r.Delta, r.Names, locators = true, m.GetResourceNamesSubscribe(), m.GetResourceLocatorsSubscribe()
	}
	for _, l := range locators {
		constraints, _ := dynparam.FromProto(l.GetDynamicParameterConstraints())
		r.Locators = append(r.Locators, testutils.Locator{Name: l.GetName(), Constraints: constraints})
	}
}

// String is for failed tests.
func (r Request) String() string { return fmt.Sprintf("stream %d: %v", r.Stream, r.message) }

// Match is a predicate on requests.
type Match func(Request) bool

// Subscribing matches the requests of a type that ask for all of these names,
// and perhaps for more: SotW requests that have them in their list, and delta
// requests that subscribe to them.
func Subscribing(typeURL string, names ...string) Match {
	return func(r Request) bool {
		return r.TypeURL == typeURL && !slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(r.Names, name) })
	}
}

// ACKOf matches the requests of a type that answer a response and accept it. In
// SotW a change of subscription repeats the nonce and matches, too.
func ACKOf(typeURL string) Match {
	return func(r Request) bool { return r.TypeURL == typeURL && r.Nonce != "" && r.Err == nil }
}

// NACKOf matches the requests of a type that reject a response.
func NACKOf(typeURL string) Match {
	return func(r Request) bool { return r.TypeURL == typeURL && r.Err != nil }
}
