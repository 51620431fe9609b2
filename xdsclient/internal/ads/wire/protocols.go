package wire

import (
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/dynxds/dynxds/xdsclient/internal/transport"
)

// Method is the full name of the streaming gRPC method.
func (d Dialect) Method() string {
	if d.Incremental {
		return "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
	}
	return "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
}

// The fields of DiscoveryRequest and DeltaDiscoveryRequest with locators (xRFC TP2, "API Changes").
const (
	locatorsInSotW      protowire.Number = 7
	locatorsSubscribe   protowire.Number = 8
	locatorsUnsubscribe protowire.Number = 9
)

// Encode makes the message for a request. In SotW each request carries all names of its type, in delta the names that were
// added and removed.
func (d Dialect) Encode(r *Request) ([]byte, error) {
	if d.Incremental {
		return encodeDelta(r)
	}
	b, err := transport.Marshal(&discoveryv3.DiscoveryRequest{
		VersionInfo:   r.Version,
		Node:          r.Node,
		ResourceNames: r.All.Names,
		TypeUrl:       r.TypeURL,
		ResponseNonce: r.Nonce,
		ErrorDetail:   r.errorDetail(),
	}, roomFor(r.All.Locators))
	return appendLocators(b, locatorsInSotW, r.All.Locators), err
}

func encodeDelta(r *Request) ([]byte, error) {
	b, err := transport.Marshal(&discoveryv3.DeltaDiscoveryRequest{
		Node:                     r.Node,
		TypeUrl:                  r.TypeURL,
		ResourceNamesSubscribe:   r.Subscribe.Names,
		ResourceNamesUnsubscribe: r.Unsubscribe.Names,
		InitialResourceVersions:  r.Cached,
		ResponseNonce:            r.Nonce,
		ErrorDetail:              r.errorDetail(),
	}, roomFor(r.Subscribe.Locators)+roomFor(r.Unsubscribe.Locators))
	b = appendLocators(b, locatorsSubscribe, r.Subscribe.Locators)
	return appendLocators(b, locatorsUnsubscribe, r.Unsubscribe.Locators), err
}

// sotwLayout is that of envoy.service.discovery.v3.DiscoveryResponse.
var sotwLayout = layout{
	message:        "DiscoveryResponse",
	version:        1,
	resources:      2,
	typeURL:        4,
	nonce:          5,
	resourceErrors: 7,
}

// deltaLayout is that of envoy.service.discovery.v3.DeltaDiscoveryResponse.
var deltaLayout = layout{
	message:         "DeltaDiscoveryResponse",
	version:         1,
	resources:       2,
	typeURL:         4,
	nonce:           5,
	removed:         6,
	removedLocators: 8,
	resourceErrors:  9,
}

// Decode reads the envelope of a response. The response refers to the bytes of the
// message. An error means that the server does not speak the protocol; errors of
// single resources are found when they are iterated.
func (d Dialect) Decode(message []byte) (*Response, error) {
	if d.Incremental {
		return deltaLayout.read(message, unwrap)
	}
	return sotwLayout.read(message, unpack)
}
