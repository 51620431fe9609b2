package xdsclient

import (
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/internal/transport"
)

// delta is the incremental variant: requests carry the names that were added and
// left, responses the resources that changed and the names of those that the
// server does not have.
type delta struct{}

func (delta) offeredBy(server *bootstrap.Server) bool {
	return server.HasFeature(bootstrap.FeatureDelta)
}

func (delta) method() string {
	return "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
}

func (delta) incremental() bool { return true }

func (delta) encode(r *request) ([]byte, error) {
	b, err := transport.Marshal(&discoveryv3.DeltaDiscoveryRequest{
		Node:                     r.node,
		TypeUrl:                  r.typeURL,
		ResourceNamesSubscribe:   r.subscribe.names,
		ResourceNamesUnsubscribe: r.unsubscribe.names,
		InitialResourceVersions:  r.cached,
		ResponseNonce:            r.nonce,
		ErrorDetail:              errorDetail(r),
	})
	b = appendLocators(b, deltaLocatorsSubscribe, r.subscribe.locators)
	return appendLocators(b, deltaLocatorsUnsubscribe, r.unsubscribe.locators), err
}

// Where DeltaDiscoveryRequest has locators (xRFC TP2, "API Changes").
const (
	deltaLocatorsSubscribe   = 8
	deltaLocatorsUnsubscribe = 9
)

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

func (delta) decode(message []byte) (*response, error) {
	r, err := deltaLayout.read(message)
	if err != nil {
		return nil, err
	}
	r.resources = func(yield func(wireResource) bool) {
		index := 0
		for b := range occurrences(message, deltaLayout.resources) {
			if !yield(unwrap(index, b, r.typeURL)) {
				return
			}
			index++
		}
	}
	return r, nil
}
