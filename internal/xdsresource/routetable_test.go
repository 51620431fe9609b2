package xdsresource

import (
	"strings"
	"testing"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/xdsmsg"
)

// gRFC A28, "Picking": the first match wins, even over an exact one behind it.
func TestFirstMatchWins(t *testing.T) {
	t.Parallel()
	vh := decodeRoutes(t,
		xdsmsg.PrefixRoute("/MyService", "first"),
		xdsmsg.Route(xdsmsg.Path("/MyService/MyMethod"), xdsmsg.ToCluster("second")),
		xdsmsg.Route(xdsmsg.Path("/Other/M"), xdsmsg.ToCluster("third")),
		xdsmsg.PrefixRoute("/Other", "fourth"),
		xdsmsg.Route(xdsmsg.Path("/Other/M"), xdsmsg.ToCluster("fifth")),
	)
	for method, want := range map[string]int{"/MyService/MyMethod": 0, "/Other/M": 2, "/Other/N": 3} {
		if got := vh.Route(matching.RPC{Method: method}); got != vh.Routes[want] {
			t.Errorf("%s: got the route to %v, want route %d", method, got, want)
		}
	}
	if got := vh.Route(matching.RPC{Method: "/x"}); got != nil {
		t.Errorf("/x: got %v, want no route", got)
	}
}

func TestVirtualHostPutTogetherByHand(t *testing.T) {
	t.Parallel()
	route := &Route{Action: &Forward{Clusters: []WeightedCluster{{Name: "a", Weight: 1}}, TotalWeight: 1}}
	rc := &RouteConfiguration{VirtualHosts: []*VirtualHost{{Domains: []string{"a.b"}, Routes: []*Route{route}}}}
	if got := rc.VirtualHost("A.b").Route(matching.RPC{Method: "/m"}); got != route {
		t.Errorf("Route = %v, want the one there is", got)
	}
	if got := rc.Clusters(); len(got) != 1 || got[0] != "a" {
		t.Errorf("Clusters = %v, want [a]", got)
	}
}

func TestDeeplyNestedPrefixes(t *testing.T) {
	t.Parallel()
	// Given more prefixes of one path than are walked side by side, in an order
	// in which none hides the next; then each still gets its RPCs.
	for _, fold := range []bool{false, true} {
		var routes []*routepb.Route
		for n := 40; n >= 0; n-- {
			match := xdsmsg.Prefix("/" + strings.Repeat("a", n))
			if fold && n%2 == 0 {
				match = caseInsensitive(match)
			}
			routes = append(routes, xdsmsg.Route(match, xdsmsg.ToCluster("c")))
		}
		vh := decodeRoutes(t, routes...)
		for n := range 41 {
			if got, want := vh.Route(matching.RPC{Method: "/" + strings.Repeat("a", n)}), vh.Routes[40-n]; got != want {
				t.Errorf("%d letters, fold %v: got the route for %q, want that for %q", n, fold, got.Match.Path, want.Match.Path)
			}
		}
	}
}

func TestRouteDoesNotAllocate(t *testing.T) {
	byHeader := xdsmsg.Prefix("/other/")
	byHeader.Headers = []*routepb.HeaderMatcher{exact("h", "x")}
	byContentType := xdsmsg.Prefix("/s/")
	byContentType.Headers = []*routepb.HeaderMatcher{exact("content-type", "x")}
	vh := decodeRoutes(t,
		xdsmsg.Route(byHeader, xdsmsg.ToCluster("a")),
		xdsmsg.Route(byContentType, xdsmsg.ToCluster("a")),
		xdsmsg.Route(regexMatch("/s/.*x"), xdsmsg.ToCluster("a")),
		xdsmsg.Route(caseInsensitive(xdsmsg.Path("/S/n")), xdsmsg.ToCluster("a")),
		xdsmsg.Route(xdsmsg.Path("/s/m"), xdsmsg.ToCluster("a")))
	ctx := metadata.AppendToOutgoingContext(t.Context(), "h", "x")
	allocs := testing.AllocsPerRun(100, func() {
		if vh.Route(matching.RPC{Method: "/s/m", Context: ctx}) != vh.Routes[4] {
			t.Error("not the last route")
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations, want 0: no route of this RPC looks at its metadata", allocs)
	}
}

func TestRouteByMetadataOfTheContext(t *testing.T) {
	t.Parallel()
	match := xdsmsg.Prefix("/")
	match.Headers = []*routepb.HeaderMatcher{exact("h", "x,y")}
	vh := decodeRoutes(t, xdsmsg.Route(match, xdsmsg.ToCluster("a")))
	ctx := metadata.AppendToOutgoingContext(t.Context(), "H", "x", "h", "y")
	if vh.Route(matching.RPC{Method: "/", Context: ctx}) == nil {
		t.Error("no route although the context has the header")
	}
	for name, rpc := range map[string]matching.RPC{
		"no context":                {Method: "/"},
		"no metadata":               {Method: "/", Context: t.Context()},
		"Metadata goes before that": {Method: "/", Context: ctx, Metadata: func() metadata.MD { return nil }},
	} {
		if vh.Route(rpc) != nil {
			t.Errorf("%s: the route matches", name)
		}
	}
}
