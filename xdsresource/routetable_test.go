package xdsresource

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/url"
	"regexp"
	"strings"
	"testing"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/metadata"
)

// gRFC A28, "Picking": the first match wins, even over an exact one behind it.
func TestFirstMatchWins(t *testing.T) {
	t.Parallel()
	vh := decodeRoutes(t,
		toCluster("/MyService", "first"),
		routeTo(pathMatch("/MyService/MyMethod"), clusterAction("second")),
		routeTo(pathMatch("/Other/M"), clusterAction("third")),
		toCluster("/Other", "fourth"),
		routeTo(pathMatch("/Other/M"), clusterAction("fifth")),
	)
	for method, want := range map[string]int{"/MyService/MyMethod": 0, "/Other/M": 2, "/Other/N": 3} {
		if got := vh.Route(RPC{Method: method}); got != vh.Routes[want] {
			t.Errorf("%s: got the route to %v, want route %d", method, got, want)
		}
	}
	if got := vh.Route(RPC{Method: "/x"}); got != nil {
		t.Errorf("/x: got %v, want no route", got)
	}
}

func TestVirtualHostPutTogetherByHand(t *testing.T) {
	t.Parallel()
	route := &Route{Action: &Forward{Clusters: []WeightedCluster{{Name: "a", Weight: 1}}, TotalWeight: 1}}
	rc := &RouteConfiguration{VirtualHosts: []*VirtualHost{{Domains: []string{"a.b"}, Routes: []*Route{route}}}}
	if got := rc.VirtualHost("A.b").Route(RPC{Method: "/m"}); got != route {
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
			match := prefixMatch("/" + strings.Repeat("a", n))
			if fold && n%2 == 0 {
				match = caseInsensitive(match)
			}
			routes = append(routes, routeTo(match, clusterAction("c")))
		}
		vh := decodeRoutes(t, routes...)
		for n := range 41 {
			if got, want := vh.Route(RPC{Method: "/" + strings.Repeat("a", n)}), vh.Routes[40-n]; got != want {
				t.Errorf("%d letters, fold %v: got the route for %q, want that for %q", n, fold, got.Match.Path, want.Match.Path)
			}
		}
	}
}

func TestRouteDoesNotAllocate(t *testing.T) {
	byHeader := prefixMatch("/other/")
	byHeader.Headers = []*routepb.HeaderMatcher{exact("h", "x")}
	byContentType := prefixMatch("/s/")
	byContentType.Headers = []*routepb.HeaderMatcher{exact("content-type", "x")}
	vh := decodeRoutes(t,
		routeTo(byHeader, clusterAction("a")),
		routeTo(byContentType, clusterAction("a")),
		routeTo(regexMatch("/s/.*x"), clusterAction("a")),
		routeTo(caseInsensitive(pathMatch("/S/n")), clusterAction("a")),
		routeTo(pathMatch("/s/m"), clusterAction("a")))
	ctx := metadata.AppendToOutgoingContext(t.Context(), "h", "x")
	allocs := testing.AllocsPerRun(100, func() {
		if vh.Route(RPC{Method: "/s/m", Context: ctx}) != vh.Routes[4] {
			t.Error("not the last route")
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations, want 0: no route of this RPC looks at its metadata", allocs)
	}
}

func TestRouteByMetadataOfTheContext(t *testing.T) {
	t.Parallel()
	match := prefixMatch("/")
	match.Headers = []*routepb.HeaderMatcher{exact("h", "x,y")}
	vh := decodeRoutes(t, routeTo(match, clusterAction("a")))
	ctx := metadata.AppendToOutgoingContext(t.Context(), "H", "x", "h", "y")
	if vh.Route(RPC{Method: "/", Context: ctx}) == nil {
		t.Error("no route although the context has the header")
	}
	for name, rpc := range map[string]RPC{
		"no context":                {Method: "/"},
		"no metadata":               {Method: "/", Context: t.Context()},
		"Metadata goes before that": {Method: "/", Context: ctx, Metadata: func() metadata.MD { return nil }},
	} {
		if vh.Route(rpc) != nil {
			t.Errorf("%s: the route matches", name)
		}
	}
}

// linearRoute is Route as gRFC A28 describes it, written without any of the
// code under test.
func linearRoute(vh *VirtualHost, method string, md metadata.MD, draw func() uint64) *Route {
	method, query, hasQuery := strings.Cut(method, "?")
	parameters, _ := url.ParseQuery(query)
	for _, route := range vh.Routes {
		m := route.Match
		a, b := method, m.Path
		if m.CaseInsensitive {
			a, b = strings.ToLower(a), strings.ToLower(b)
		}
		switch m.PathKind {
		case PathPrefix:
			if !strings.HasPrefix(a, b) {
				continue
			}
		case PathExact:
			if a != b {
				continue
			}
		case PathSeparatedPrefix:
			if !strings.HasPrefix(a+"/", b+"/") {
				continue
			}
		case PathRegex:
			re := regexp.MustCompile(m.Regex.String())
			if re.FindString(method) != method || !re.MatchString(method) {
				continue
			}
		}
		fits := true
		for _, q := range m.Query {
			switch values, ok := parameters[q.Name]; {
			case q.String != nil:
				fits = fits && ok && values[0] == q.String.Value
			default:
				fits = fits && hasQuery && ok == q.Present
			}
		}
		for _, h := range m.Headers {
			values, ok := md[h.Name]
			fits = fits && ok && (strings.Join(values, ",") == h.String.Value) != h.Invert
		}
		if fits && (m.FractionPerMillion == nil || uint32(draw()%1_000_000) < *m.FractionPerMillion) {
			return route
		}
	}
	return nil
}

// randomPath returns a path over a small alphabet, so that paths often are
// equal, or prefixes of each other.
func randomPath(r *rand.Rand) string {
	var b strings.Builder
	b.WriteByte('/')
	for range r.IntN(7) {
		b.WriteByte("abAB/"[r.IntN(5)])
	}
	return b.String()
}

func randomMatch(r *rand.Rand) *routepb.RouteMatch {
	var m *routepb.RouteMatch
	switch r.IntN(8) {
	case 0:
		patterns := []string{".*b", "[ab]*", "(?i)a.*", "", "b?", "(A|B)/.*", "+"}
		m = regexMatch(randomPath(r) + patterns[r.IntN(len(patterns))])
	case 1, 2:
		m = pathMatch(randomPath(r))
	case 3:
		m = separatedMatch(strings.TrimRight(randomPath(r), "/") + "/a")
	default:
		m = prefixMatch(randomPath(r)[:1])
		if path := randomPath(r); r.IntN(10) > 0 {
			m = prefixMatch(path)
		}
	}
	if r.IntN(4) == 0 {
		m = caseInsensitive(m)
	}
	for range r.IntN(6) - 3 {
		h := exact([]string{"x", "y"}[r.IntN(2)], []string{"0", "1", "0,1"}[r.IntN(3)])
		h.InvertMatch = r.IntN(4) == 0
		m.Headers = append(m.Headers, h)
	}
	if r.IntN(20) == 0 {
		is := &matcherpb.StringMatcher{MatchPattern: &matcherpb.StringMatcher_Exact{Exact: "1"}}
		m.QueryParameters = []*routepb.QueryParameterMatcher{
			stringQuery("q", is), queryPresent("q", true), queryPresent("q", false),
		}[r.IntN(3):][:1]
	}
	if r.IntN(6) == 0 {
		m.RuntimeFraction = fraction(uint32(r.IntN(101)), typepb.FractionalPercent_HUNDRED)
	}
	return m
}

func randomMetadata(r *rand.Rand) metadata.MD {
	md := metadata.MD{}
	for _, name := range []string{"x", "y"} {
		for range r.IntN(3) {
			md.Append(name, []string{"0", "1"}[r.IntN(2)])
		}
	}
	return md
}

var (
	differentialDraws = flag.Int("differential-draws", 100_000, "number of RPCs of the differential test of the route table")
	differentialSeed  = flag.Uint64("differential-seed", 1, "what the differential test of the route table draws its tables and RPCs from")
)

func TestRouteTableAgreesWithALinearMatcher(t *testing.T) {
	t.Parallel()
	const rpcsPerTable = 500
	for table := range *differentialDraws / rpcsPerTable {
		r := rand.New(rand.NewPCG(*differentialSeed, uint64(table)))
		var routes []*routepb.Route
		for i := range r.IntN([]int{60, 60, 300}[table%3]) {
			routes = append(routes, routeTo(randomMatch(r), clusterAction(fmt.Sprint(i))))
		}
		vh := decodeRoutes(t, routes...)
		for range rpcsPerTable {
			method, md, seed := randomPath(r), randomMetadata(r), r.Uint64()
			if r.IntN(8) == 0 {
				method += []string{"?", "?q=1", "?p=1&q=0", "?p"}[r.IntN(4)]
			}
			draws := func() func() uint64 { return rand.New(rand.NewPCG(seed, 0)).Uint64 }
			got := vh.Route(RPC{Method: method, Metadata: func() metadata.MD { return md }, Random: draws()})
			if want := linearRoute(vh, method, md, draws()); got != want {
				t.Fatalf("seed %d, table %d of %d routes: %s with %v: got %+v, want %+v", *differentialSeed, table, len(routes), method, md, got, want)
			}
		}
	}
}

func TestLiteralPrefix(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]string{
		"/a/b":          "/a/b",
		"/a/.*":         "/a/",
		"^/a/[bc]":      "/a/",
		"(/a)(/b|/c)":   "/a/",
		"(/a/b)x+":      "/a/b",
		"(?i)/a":        "",
		"/ab*":          "/a",
		"/a|/b":         "/",
		"/a(?:)b$":      "/ab",
		".*":            "",
		"/a\\x{FFFD}b":  "/a",
		"(?:/a(?i:b))c": "/a",
		"(?:/a){2}":     "",
		"/a(?:b{0,1})c": "/a",
		"\\Q/a.b\\E.":   "/a.b",
		"/\\p{Greek}":   "/",
		"\\b/a":         "",
	} {
		match := regexMatch(pattern)
		vh := decodeRoutes(t, routeTo(match, clusterAction("a")))
		if got := vh.Routes[0].Match.regexPrefix; got != want {
			t.Errorf("prefix of %q = %q, want %q", pattern, got, want)
		}
	}
}
