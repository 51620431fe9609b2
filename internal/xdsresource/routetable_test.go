package xdsresource

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// decodeDomains decodes a RouteConfiguration with a virtual host for each
// domain, called like it.
func decodeDomains(t testing.TB, domains ...string) *RouteConfiguration {
	t.Helper()
	pb := &routepb.RouteConfiguration{Name: "r"}
	for _, d := range domains {
		pb.VirtualHosts = append(pb.VirtualHosts, &routepb.VirtualHost{Name: d, Domains: []string{d}})
	}
	return mustDecode[RouteConfiguration](t, RouteConfigurationType, pb)
}

// linearVirtualHost compares an authority with one domain after the other.
func linearVirtualHost(domains []string, authority string) string {
	rank := func(domain string) int {
		switch text := strings.Trim(domain, "*"); {
		case domain == authority:
			return 1_000
		case domain == "*":
			return 1
		case domain[0] == '*' && len(authority) > len(text) && strings.HasSuffix(authority, text):
			return 500 + len(text)
		case domain[len(domain)-1] == '*' && len(authority) > len(text) && strings.HasPrefix(authority, text):
			return 100 + len(text)
		}
		return 0
	}
	best := ""
	for _, d := range domains {
		if rank(d) > 0 && (best == "" || rank(d) > rank(best)) {
			best = d
		}
	}
	return best
}

func TestVirtualHostAgreesWithALinearSearch(t *testing.T) {
	t.Parallel()
	word := func(r *rand.Rand, least int) string {
		b := make([]byte, least+r.IntN(5))
		for i := range b {
			b[i] = "ab."[r.IntN(3)]
		}
		return string(b)
	}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(2, seed))
		known := map[string]bool{}
		var domains []string
		for range r.IntN(30) {
			d := []string{"*", "", ""}[r.IntN(3)] + word(r, 1)
			if d[0] != '*' && r.IntN(2) == 0 {
				d += "*"
			}
			if r.IntN(20) == 0 {
				d = "*"
			}
			if !known[d] {
				known[d] = true
				domains = append(domains, d)
			}
		}
		rc := decodeDomains(t, domains...)
		for range 200 {
			authority, got := word(r, 0), ""
			if vh := rc.VirtualHost(authority); vh != nil {
				got = vh.Name
			}
			if want := linearVirtualHost(domains, authority); got != want {
				t.Fatalf("%q among %q: got %q, want %q", authority, domains, got, want)
			}
		}
	}
}

func TestVirtualHostDoesNotAllocate(t *testing.T) {
	rc := decodeDomains(t, "*", "*.example.com", "echo.*", "a")
	allocs := testing.AllocsPerRun(100, func() {
		if rc.VirtualHost("echo.example.net").Name != "echo.*" || rc.VirtualHost("x.example.com") == nil {
			t.Error("wrong virtual host")
		}
	})
	xdstest.Equal(t, "allocations", 0, allocs)
}

func TestVirtualHostThatWasNotDecoded(t *testing.T) {
	t.Parallel()
	route := &Route{Settings: &Settings{Action: &Forward{Clusters: []WeightedCluster{{Name: "a", Weight: 1}}}}}
	rc := &RouteConfiguration{VirtualHosts: []*VirtualHost{{Domains: []string{"a.b"}, Routes: []*Route{route}}}}
	if got := rc.VirtualHost("A.b").Route(matching.RPC{Method: "/m"}); got != route {
		t.Errorf("Route = %v, want the one there is", got)
	}
	if got := slices.Collect(rc.VirtualHosts[0].Clusters); len(got) != 1 || got[0] != "a" {
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
	xdstest.Equal(t, "allocations (no route of this RPC looks at its metadata)", 0, allocs)
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
		"no context":  {Method: "/"},
		"no metadata": {Method: "/", Context: t.Context()},
	} {
		if vh.Route(rpc) != nil {
			t.Errorf("%s: the route matches", name)
		}
	}
}
