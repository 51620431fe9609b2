package xdsclient

import (
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"

	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/internal/transport"
)

// sotw is the state-of-the-world variant: each request carries all names of its
// type, and each response for a type with FullStateInSotW all its resources.
type sotw struct{}

func (sotw) offeredBy(*bootstrap.Server) bool { return true }

func (sotw) method() string {
	return "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
}

func (sotw) incremental() bool { return false }

func (sotw) encode(r *request) ([]byte, error) {
	b, err := transport.Marshal(&discoveryv3.DiscoveryRequest{
		VersionInfo:   r.version,
		Node:          r.node,
		ResourceNames: r.all.names,
		TypeUrl:       r.typeURL,
		ResponseNonce: r.nonce,
		ErrorDetail:   errorDetail(r),
	})
	return appendLocators(b, sotwLocators, r.all.locators), err
}

// sotwLocators is the field of DiscoveryRequest with locators (xRFC TP2, "API
// Changes").
const sotwLocators = 7

// errorDetail is what makes a request a NACK.
func errorDetail(r *request) *statuspb.Status {
	if r.fault == "" {
		return nil
	}
	return &statuspb.Status{Code: int32(codes.InvalidArgument), Message: r.fault}
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

func (sotw) decode(message []byte) (*response, error) {
	r, err := sotwLayout.read(message)
	if err != nil {
		return nil, err
	}
	r.fullState = true
	r.resources = func(yield func(wireResource) bool) {
		index := 0
		for b := range occurrences(message, sotwLayout.resources) {
			if !yield(unpack(index, b, r.typeURL)) {
				return
			}
			index++
		}
	}
	return r, nil
}
