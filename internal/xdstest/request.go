package xdstest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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
	// Names is resource_names, in the client's order. SotW only.
	Names []string
	// Version is version_info. SotW only.
	Version string
	// Subscribe and Unsubscribe are resource_names_subscribe and
	// resource_names_unsubscribe, in the client's order. Delta only.
	Subscribe, Unsubscribe []string
	// Locators is resource_locators, in the client's order. SotW only.
	Locators []testutils.Locator
	// SubscribeLocators and UnsubscribeLocators are resource_locators_subscribe
	// and resource_locators_unsubscribe, in the client's order. Delta only.
	// Constraints that cannot be used are not in any of the three; see Raw.
	SubscribeLocators, UnsubscribeLocators []testutils.Locator
	// InitialVersions is initial_resource_versions, nil if it is empty. Delta
	// only.
	InitialVersions map[string]string
	Nonce           string
	// Err is error_detail, nil if there was none.
	Err *status.Status
	// Node is nil if the request had none.
	Node *corepb.Node
	// Raw or RawDelta is the message itself, the other one is nil. It must not
	// be changed.
	Raw      *discoverypb.DiscoveryRequest
	RawDelta *discoverypb.DeltaDiscoveryRequest
}

func newRequest(stream uint64, m *discoverypb.DiscoveryRequest) Request {
	r := Request{
		Stream:   stream,
		TypeURL:  m.GetTypeUrl(),
		Names:    slices.Clone(m.GetResourceNames()),
		Version:  m.GetVersionInfo(),
		Locators: locators(m.GetResourceLocators()),
		Nonce:    m.GetResponseNonce(),
		Node:     m.GetNode(),
		Raw:      m,
	}
	r.setErr(m.GetErrorDetail())
	return r
}

func newDeltaRequest(stream uint64, m *discoverypb.DeltaDiscoveryRequest) Request {
	r := Request{
		Stream:              stream,
		Delta:               true,
		TypeURL:             m.GetTypeUrl(),
		Subscribe:           slices.Clone(m.GetResourceNamesSubscribe()),
		Unsubscribe:         slices.Clone(m.GetResourceNamesUnsubscribe()),
		SubscribeLocators:   locators(m.GetResourceLocatorsSubscribe()),
		UnsubscribeLocators: locators(m.GetResourceLocatorsUnsubscribe()),
		InitialVersions:     maps.Clone(m.GetInitialResourceVersions()),
		Nonce:               m.GetResponseNonce(),
		Node:                m.GetNode(),
		RawDelta:            m,
	}
	r.setErr(m.GetErrorDetail())
	return r
}

func locators(list []*discoverypb.ResourceLocator) []testutils.Locator {
	var locators []testutils.Locator
	for _, m := range list {
		constraints, err := dynparam.FromProto(m.GetDynamicParameterConstraints())
		if err != nil {
			constraints = dynparam.Constraints{}
		}
		locators = append(locators, testutils.Locator{Name: m.GetName(), Constraints: constraints})
	}
	return locators
}

func (r *Request) setErr(detail *statuspb.Status) {
	if detail != nil {
		r.Err = status.New(codes.Code(detail.GetCode()), detail.GetMessage())
	}
}

// String is for failed tests.
func (r Request) String() string {
	short := r.TypeURL[strings.LastIndexByte(r.TypeURL, '.')+1:]
	s := fmt.Sprintf("stream %d: %s names=%q version=%q nonce=%q", r.Stream, short, r.Names, r.Version, r.Nonce)
	if r.Delta {
		s = fmt.Sprintf("stream %d: delta %s subscribe=%q unsubscribe=%q versions=%q nonce=%q",
			r.Stream, short, r.Subscribe, r.Unsubscribe, r.InitialVersions, r.Nonce)
	}
	for _, l := range slices.Concat(r.Locators, r.SubscribeLocators) {
		s += fmt.Sprintf(" locator=%q%v", l.Name, l.Constraints)
	}
	for _, l := range r.UnsubscribeLocators {
		s += fmt.Sprintf(" unsubscribe-locator=%q%v", l.Name, l.Constraints)
	}
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

// ForNames matches the SotW requests of a type for exactly these names, in any
// order.
func ForNames(typeURL string, names ...string) Match {
	want := slices.Sorted(slices.Values(names))
	return func(r Request) bool {
		return !r.Delta && r.TypeURL == typeURL && slices.Equal(slices.Sorted(slices.Values(r.Names)), want)
	}
}

// Subscribing matches the requests of a type that ask for all of these names,
// and perhaps for more: SotW requests that have them in their list, and delta
// requests that subscribe to them.
func Subscribing(typeURL string, names ...string) Match {
	return func(r Request) bool {
		asked := r.Names
		if r.Delta {
			asked = r.Subscribe
		}
		return r.TypeURL == typeURL && containsAll(asked, names)
	}
}

// SubscribingTo matches the requests of a type that ask for all of these
// locators, and perhaps for more: SotW requests that have them in their list, and
// delta requests that subscribe to them.
func SubscribingTo(typeURL string, want ...testutils.Locator) Match {
	return func(r Request) bool {
		have := slices.Concat(r.Locators, r.SubscribeLocators)
		return r.TypeURL == typeURL && !slices.ContainsFunc(want, func(w testutils.Locator) bool {
			return !slices.ContainsFunc(have, func(h testutils.Locator) bool {
				return h.Name == w.Name && h.Constraints.Equal(w.Constraints)
			})
		})
	}
}

// Unsubscribing matches the delta requests of a type that unsubscribe from all
// of these names, and perhaps from more.
func Unsubscribing(typeURL string, names ...string) Match {
	return func(r Request) bool {
		return r.Delta && r.TypeURL == typeURL && containsAll(r.Unsubscribe, names)
	}
}

func containsAll(have, want []string) bool {
	return !slices.ContainsFunc(want, func(name string) bool { return !slices.Contains(have, name) })
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
