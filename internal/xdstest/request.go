package xdstest

import (
	"fmt"
	"slices"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

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

func newRequest(stream uint64, m *discoverypb.DiscoveryRequest) Request {
	return Request{
		Stream: stream, TypeURL: m.GetTypeUrl(), Names: m.GetResourceNames(), Locators: locators(m.GetResourceLocators()),
		Nonce: m.GetResponseNonce(), Node: m.GetNode(), Err: errorOf(m.GetErrorDetail()), message: m,
	}
}

func newDeltaRequest(stream uint64, m *discoverypb.DeltaDiscoveryRequest) Request {
	return Request{
		Stream: stream, Delta: true, TypeURL: m.GetTypeUrl(),
		Names: m.GetResourceNamesSubscribe(), Locators: locators(m.GetResourceLocatorsSubscribe()),
		Nonce: m.GetResponseNonce(), Node: m.GetNode(), Err: errorOf(m.GetErrorDetail()), message: m,
	}
}

func locators(list []*discoverypb.ResourceLocator) (locators []testutils.Locator) {
	for _, m := range list {
		constraints, _ := dynparam.FromProto(m.GetDynamicParameterConstraints())
		locators = append(locators, testutils.Locator{Name: m.GetName(), Constraints: constraints})
	}
	return locators
}

func errorOf(detail *statuspb.Status) *status.Status {
	if detail == nil {
		return nil
	}
	return status.FromProto(detail)
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
