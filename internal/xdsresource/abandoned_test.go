package xdsresource

import (
	"strings"
	"testing"

	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/xdsclient"
)

// A client that is closed while a table of routes is decoded does not wait for the rest of it.
func TestDecodingOfRoutesEndsWhenTheClientIsClosed(t *testing.T) {
	t.Parallel()
	const n = 1000
	pb := manyRoutes(n, func(int) *routepb.RouteMatch { return xdsmsg.Path("/a") })
	for name, closeAt := range map[string]int{"before": 0, "in the middle": 10} {
		done := make(chan struct{})
		if closeAt == 0 {
			close(done)
		}
		read := 0
		v := newValidator(xdsclient.DecodeOptions{Done: done})
		for host := range v.hosts(nil, xdsmsg.Any(pb).GetValue()) {
			routes := host.routes
			host.routes = func(yield func([]byte) bool) {
				for raw := range routes {
					if read++; read == closeAt {
						close(done)
					}
					if !yield(raw) {
						return
					}
				}
			}
			newRouteDecoder(v, nil, pb).virtualHost(nil, 0, host)
		}
		if err := v.err(); err == nil || !strings.Contains(err.Error(), "the client was closed") {
			t.Errorf("%s: got error %v", name, err)
		}
		if want := max(closeAt, 1); read != want { // The one at which it ends is not decoded.
			t.Errorf("%s: %d of %d routes were read, want %d", name, read, n, want)
		}
	}
}

// Likewise for endpoints. Each of these is a fault if it is decoded.
func TestDecodingOfEndpointsEndsWhenTheClientIsClosed(t *testing.T) {
	t.Parallel()
	faulty := xdsmsg.SimpleEndpoints("c", "10.0.0.1:80")
	for range 10 {
		faulty.Endpoints[0].LbEndpoints = append(faulty.Endpoints[0].LbEndpoints, new(endpointpb.LbEndpoint))
	}
	done := make(chan struct{})
	close(done)
	_, err := EndpointsType.Decode(xdsmsg.Any(faulty), xdsclient.DecodeOptions{Done: done})
	if err == nil || err.Error() != "the client was closed while the resource was decoded" {
		t.Errorf("got error %v", err)
	}
}
