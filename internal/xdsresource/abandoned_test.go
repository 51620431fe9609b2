package xdsresource

import (
	"strings"
	"testing"

	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"google.golang.org/protobuf/types/known/anypb"

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

// Nor does it wait for the list of what is ignored of them, or of another resource.
func TestListOfIgnoredFieldsEndsWhenTheClientIsClosed(t *testing.T) {
	t.Parallel()
	routes := manyRoutes(1000, func(int) *routepb.RouteMatch { return xdsmsg.Path("/a") })
	n := len(routes.VirtualHosts[0].Routes)
	for _, route := range routes.VirtualHosts[0].Routes {
		route.Match.Cookies = []*routepb.CookieMatcher{{}}
	}
	resource := xdsmsg.Any(routes)
	if list := ignoredIn(resource, nil, nil); len(list) != 1 || list[0].Places != n {
		t.Fatalf("%v is ignored, want the field of each of %d routes", list, n)
	}
	done := make(chan struct{})
	w := fieldWalk{done: done}
	message := routes.ProtoReflect()
	w.message(nil, message)
	close(done)
	w.message(nil, message)
	if got := w.ignored.list()[0].Places; got != n {
		t.Errorf("after the end %d more messages were read", got-n)
	}
	// What is read in parts ends before the next of them, which could not be read.
	endpoints := xdsmsg.Any(xdsmsg.SimpleEndpoints("c", "10.0.0.1:80"))
	for _, resource := range []*anypb.Any{resource, endpoints} {
		resource.Value = append(resource.Value, fieldVirtualHosts<<3|2, 1, 0xff)
		if _, err := ignoredFields(resource, done); err == nil || err.Error() != "the list is no longer needed" {
			t.Errorf("%s: got error %v", resource.GetTypeUrl(), err)
		}
		if _, err := ignoredFields(resource, nil); err == nil || err.Error() == "the list is no longer needed" {
			t.Errorf("%s: got error %v while it is needed", resource.GetTypeUrl(), err)
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
