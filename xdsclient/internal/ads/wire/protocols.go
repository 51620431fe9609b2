package wire

import (
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/internal/transport"
)

// SotW is the state-of-the-world protocol: each request carries all names of its type, and
// each response, for some types, all resources. Every server speaks it.
type SotW struct{}

// Method implements Protocol.
func (SotW) Method() string {
	return "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
}

// Dialect implements Protocol.
func (SotW) Dialect(server *bootstrap.Server) Dialect {
	return Dialect{locators: server.HasFeature(bootstrap.FeatureDynamicParameterConstraints)}
}

// locatorsInSotW is the field of DiscoveryRequest with locators (xRFC TP2, "API Changes").
const locatorsInSotW = 7

// Encode implements Protocol.
func (SotW) Encode(r *Request) ([]byte, error) {
	b, err := transport.Marshal(&discoveryv3.DiscoveryRequest{
		VersionInfo:   r.Version,
		Node:          r.Node,
		ResourceNames: r.All.Names,
		TypeUrl:       r.TypeURL,
		ResponseNonce: r.Nonce,
		ErrorDetail:   r.errorDetail(),
	}, sizeOfLocators(locatorsInSotW, r.All.Locators))
	return appendLocators(b, locatorsInSotW, r.All.Locators), err
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

// Decode implements Protocol.
func (SotW) Decode(message []byte) (*Response, error) {
	r, err := sotwLayout.read(message, unpack)
	if err == nil {
		r.FullState = true
	}
	return r, err
}

// Delta is the incremental protocol: requests carry the names that were added and removed,
// responses the resources that changed and the names of those that the server does not have.
type Delta struct{}

// Method implements Protocol.
func (Delta) Method() string {
	return "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
}

// Dialect implements Protocol.
func (Delta) Dialect(server *bootstrap.Server) Dialect {
	return Dialect{incremental: true, locators: server.HasFeature(bootstrap.FeatureDynamicParameterConstraints)}
}

// The fields of DeltaDiscoveryRequest with locators (xRFC TP2, "API Changes").
const (
	locatorsSubscribe   protowire.Number = 8
	locatorsUnsubscribe protowire.Number = 9
)

// Encode implements Protocol.
func (Delta) Encode(r *Request) ([]byte, error) {
	b, err := transport.Marshal(&discoveryv3.DeltaDiscoveryRequest{
		Node:                     r.Node,
		TypeUrl:                  r.TypeURL,
		ResourceNamesSubscribe:   r.Subscribe.Names,
		ResourceNamesUnsubscribe: r.Unsubscribe.Names,
		InitialResourceVersions:  r.Cached,
		ResponseNonce:            r.Nonce,
		ErrorDetail:              r.errorDetail(),
	}, sizeOfLocators(locatorsSubscribe, r.Subscribe.Locators)+sizeOfLocators(locatorsUnsubscribe, r.Unsubscribe.Locators))
	b = appendLocators(b, locatorsSubscribe, r.Subscribe.Locators)
	return appendLocators(b, locatorsUnsubscribe, r.Unsubscribe.Locators), err
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

// Decode implements Protocol.
func (Delta) Decode(message []byte) (*Response, error) { return deltaLayout.read(message, unwrap) }
