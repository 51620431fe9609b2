package explain

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// serving returns what a client needs for these routes: each cluster has one endpoint.
func serving(routes ...*routepb.Route) *Source {
	messages := []proto.Message{xdsmsg.DefaultListener("backend", "r"), xdsmsg.RouteConfig("r", "*", routes...)}
	known := make(map[string]bool)
	for _, r := range routes {
		if name := r.GetRoute().GetCluster(); name != "" && !known[name] {
			known[name] = true
			messages = append(messages, xdsmsg.EDSCluster(name, ""), xdsmsg.SimpleEndpoints(name, "10.0.0.1:80"))
		}
	}
	return sourceOf(messages...)
}

func some(percent uint32, cluster string) *routepb.Route {
	r := xdsmsg.PrefixRoute("/", cluster)
	r.Match.RuntimeFraction = fraction(percent)
	return r
}

// Fractions of later routes are of what earlier ones leave.
func TestShares(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		routes   []*routepb.Route
		shares   []float64
		left     int
		unrouted float64
		code     string
	}{
		{"all", []*routepb.Route{xdsmsg.PrefixRoute("/", "a"), xdsmsg.PrefixRoute("/", "b")}, []float64{100, 0}, 0, 0, ""},
		{"halves", []*routepb.Route{some(50, "a"), some(50, "b"), xdsmsg.PrefixRoute("/", "c")}, []float64{50, 25, 25}, 0, 0, ""},
		{"a rest without a route", []*routepb.Route{some(30, "a")}, []float64{30}, 0, 70, ""},
		{"0% and 100%", []*routepb.Route{some(0, "a"), some(100, "b"), xdsmsg.PathRoute("/other/Method", "c")}, []float64{0, 100}, 1, 0, ""},
		{"no route", []*routepb.Route{xdsmsg.PathRoute("/other/Method", "a")}, []float64{0}, 0, 100, "UNAVAILABLE"},
		{"no route at all", nil, nil, 0, 100, "UNAVAILABLE"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			e := mustExplain(t, serving(tc.routes...), Request{})
			var shares []float64
			for i := range e.Routes {
				shares = append(shares, e.Routes[i].Share)
			}
			if fmt.Sprint(shares) != fmt.Sprint(tc.shares) || e.RoutesLeft != tc.left || e.Unrouted != tc.unrouted || e.Code != tc.code {
				t.Errorf("shares %v, %d routes left, %v%% unrouted, code %q; want %+v\n%s", shares, e.RoutesLeft, e.Unrouted, e.Code, tc, e.Text())
			}
		})
	}
}

// An explanation agrees with the code that routes RPCs: it has the shares that the same routes
// have over many draws, and a condition that failed for each route that is never taken.
func TestSharesAreThoseOfTheRouter(t *testing.T) {
	t.Parallel()
	const draws = 4000
	for table := range uint64(60) {
		r := rand.New(rand.NewPCG(3, table))
		var routes []*routepb.Route
		for i := range 1 + r.IntN(8) {
			route := xdsmsg.PrefixRoute([]string{"/", "/pkg", "/other"}[r.IntN(3)], fmt.Sprint("c", i))
			if r.IntN(3) == 0 {
				route.Match.Headers = []*routepb.HeaderMatcher{header("k", fmt.Sprint(r.IntN(2)))}
			}
			if r.IntN(3) == 0 {
				route.Match.RuntimeFraction = fraction(uint32(r.IntN(101)))
			}
			routes = append(routes, route)
		}
		s := serving(routes...)
		request := Request{Headers: map[string][]string{"k": {fmt.Sprint(r.IntN(2))}}}
		e := mustExplain(t, s, request)
		value, err := newHoldings(new(Source)).decode(s.Resources[1])
		if err != nil {
			t.Fatal(err)
		}
		vh := value.(*xdsresource.RouteConfiguration).VirtualHosts[0]
		counts := make(map[*xdsresource.Route]int)
		for range draws {
			counts[vh.Route(matching.RPC{Method: method, Random: r.Uint64, Metadata: func() metadata.MD { return metadata.MD(request.Headers) }})]++
		}
		for i, route := range vh.Routes {
			got := 0.0
			if at := slices.IndexFunc(e.Routes, func(r Route) bool { return r.Index == i }); at >= 0 {
				found := &e.Routes[at]
				got = found.Share
				if (found.Failed == nil && !found.Later) != (got > 0) {
					t.Errorf("table %d: route %d has a share of %v and fails for %v", table, i, got, found.Failed)
				}
			}
			// Five standard deviations of a share that is not certain.
			p := got / 100
			if want := float64(counts[route]) / draws; math.Abs(want-p) > 5*math.Sqrt(p*(1-p)/draws)+1e-9 {
				t.Errorf("table %d: route %d has a share of %v%%, of the draws %v%%:\n%s", table, i, got, want*100, e.Text())
			}
		}
	}
}

// Routes that almost match are listed wherever they are: with the first condition that fails, or behind a route that takes
// all RPCs. A long list is shortened by those whose path differs.
func TestRoutesThatAlmostMatch(t *testing.T) {
	t.Parallel()
	var routes []*routepb.Route
	for i := range 30 {
		routes = append(routes, xdsmsg.PathRoute(fmt.Sprintf("/other.Service/M%d", i), "c"))
	}
	almost := xdsmsg.PrefixRoute("/pkg", "c")
	almost.Match.Headers = []*routepb.HeaderMatcher{header("x-user", "8")}
	routes[20] = almost
	routes = append(routes, xdsmsg.PathRoute(method, "c"), xdsmsg.PathRoute("/other.Service/Last", "c"), almost, xdsmsg.PrefixRoute("/", "c"))
	e := mustExplain(t, serving(routes...), Request{Headers: map[string][]string{"x-user": {"7"}}})
	for _, want := range []string{
		"    20  prefix \"/pkg\" and header x-user = \"8\"  no: header x-user is \"7\"\n    …   21 more that do not match\n",
		"    32  prefix \"/pkg\" and header x-user = \"8\"  no: header x-user is \"7\"\n",
		"    33  prefix \"/\"                             matches too, but an earlier route takes all RPCs\n    1 later route with other paths\n",
	} {
		if !strings.Contains(e.Text(), want) {
			t.Errorf("the text lacks %q:\n%s", want, e.Text())
		}
	}
}

// What is expected of RPCs, and how they miss it.
func TestMisses(t *testing.T) {
	t.Parallel()
	split := serving(xdsmsg.WeightedRoute("/", xdsmsg.Weighted{Cluster: "a", Weight: 90}, xdsmsg.Weighted{Cluster: "b", Weight: 10}))
	whole := append(split.Resources, serving(xdsmsg.PrefixRoute("/", "a")).Resources[2:]...)
	split.Resources = append(whole, serving(xdsmsg.PrefixRoute("/", "b")).Resources[2:]...)
	noEndpoints := serving(xdsmsg.PrefixRoute("/", "a"))
	noEndpoints.Resources = noEndpoints.Resources[:3]
	for _, tc := range []struct {
		source   *Source
		expected []string
		want     string
	}{
		{serving(xdsmsg.PrefixRoute("/", "a")), []string{"a"}, ""},
		{serving(xdsmsg.PrefixRoute("/", "a")), []string{"b"}, `route 0 → cluster "a", priority 0, 1 endpoint`},
		{split, []string{"a", "b"}, ""},
		{split, []string{"a"}, `route 0 → 10% cluster "b", priority 0, 1 endpoint`},
		{serving(xdsmsg.PrefixRoute("/", "a")), []string{"a", "b"}, `no RPC goes to cluster "b"`},
		{serving(some(30, "a")), []string{"a"}, "70% no route of the virtual host matches"},
		{noEndpoints, []string{"a"}, `cluster "a", where they wait: the client has not asked for ClusterLoadAssignment "a"`},
	} {
		if got := mustExplain(t, tc.source, Request{}).Misses(tc.expected); got != tc.want {
			t.Errorf("expecting %q: %q, want %q", tc.expected, got, tc.want)
		}
	}
}

// Each failed condition has what was wanted, and what the RPC has.
func TestFailedConditions(t *testing.T) {
	t.Parallel()
	with := func(change func(m *routepb.RouteMatch)) *routepb.Route {
		r := xdsmsg.PrefixRoute("/", "c")
		change(r.Match)
		return r
	}
	headers := func(h ...*routepb.HeaderMatcher) *routepb.Route {
		return with(func(m *routepb.RouteMatch) { m.Headers = h })
	}
	inverted := header("x-b", "1")
	inverted.InvertMatch = true
	for _, tc := range []struct {
		route *routepb.Route
		want  string
	}{
		{xdsmsg.PathRoute("/a/B", "c"), `path "/a/B": path is "/pkg.Service/Method"`},
		{with(func(m *routepb.RouteMatch) {
			m.PathSpecifier = &routepb.RouteMatch_PathSeparatedPrefix{PathSeparatedPrefix: "/pkg"}
		}), `path-separated prefix "/pkg": path is "/pkg.Service/Method"`},
		{with(func(m *routepb.RouteMatch) {
			m.QueryParameters = []*routepb.QueryParameterMatcher{{Name: "q"}}
		}), "present: query q is absent; a method without a query meets no condition on it (gRFC A28)"},
		{headers(header("x-a", "1"), header("x-b", "2")), `= "2": header x-b is "1"`},
		{headers(inverted), `not = "1": header x-b is "1"`},
		{headers(header("x-c", "1")), `= "1": header x-c is absent`},
		{headers(header("x-bin", "1")), `= "1": header x-bin is absent; gRPC takes headers whose names end in -bin for absent`},
		{headers(&routepb.HeaderMatcher{Name: "x-a", HeaderMatchSpecifier: &routepb.HeaderMatcher_PresentMatch{PresentMatch: false}}), `absent: header x-a is "1"`},
		{some(0, "c"), "0% of the RPCs: its fraction is 0% of the RPCs"},
	} {
		e := mustExplain(t, serving(tc.route), Request{Headers: map[string][]string{"x-a": {"1"}, "x-b": {"1"}, "x-bin": {"1"}}})
		failed := e.Routes[0].Failed
		if failed == nil {
			t.Errorf("%v is taken, want %q", tc.route, tc.want)
			continue
		}
		if got := failed.Want + ": " + failed.String(); got != tc.want {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
}

// Mirrors and rewrites of the authority go by the headers after the route's edits, as in RPCs; a header
// value that is not visible text is not used as the authority.
func TestEditedHeadersDecide(t *testing.T) {
	t.Parallel()
	route := xdsmsg.PrefixRoute("/", "c")
	route.RequestHeadersToRemove = []string{"x-host"}
	route.RequestHeadersToAdd = []*corepb.HeaderValueOption{{Header: &corepb.HeaderValue{Key: "x-to", Value: "m"}}}
	action := route.GetRoute()
	action.RequestMirrorPolicies = []*routepb.RouteAction_RequestMirrorPolicy{{ClusterHeader: "x-to"}}
	for _, tc := range []struct{ header, want string }{{"x-to", "m"}, {"x-host", "backend"}, {"x-bad", "backend"}, {"x-own", "own"}} {
		action.HostRewriteSpecifier = &routepb.RouteAction_HostRewriteHeader{HostRewriteHeader: tc.header}
		s := serving(route, xdsmsg.PathRoute("/p.S/M", "m"))
		s.Resources[1].options.Server = &bootstrap.Server{Features: []bootstrap.Feature{bootstrap.FeatureTrustedXDSServer}}
		e := mustExplain(t, s, Request{Headers: map[string][]string{"x-host": {"h"}, "x-bad": {"a b"}, "x-own": {"own"}}})
		a := e.Routes[0].Action
		if m := a.Mirrors[0]; m.Cluster != "m" || m.Error != "" {
			t.Errorf("the mirror is %+v", m)
		}
		if a.Authority.To != tc.want || a.Authority.Ignored != "" {
			t.Errorf("the authority by %s is %+v, want %q", tc.header, a.Authority, tc.want)
		}
	}
}

// The text of ten thousand routes that do not match, and of as many endpoints, is short; the
// value has them all.
func TestTextIsShort(t *testing.T) {
	t.Parallel()
	var routes []*routepb.Route
	for i := range 10_000 {
		routes = append(routes, xdsmsg.PathRoute(fmt.Sprint("/a/", i), "c"))
	}
	s := serving(append(routes, xdsmsg.PrefixRoute("/", "c"))...)
	addrs := make([]string, 5000)
	for i := range addrs {
		addrs[i] = fmt.Sprintf("10.1.%d.%d:80", i/250, i%250)
	}
	s.Resources[3] = held(xdsmsg.SimpleEndpoints("c", addrs...))
	e := mustExplain(t, s, Request{})
	text := e.Text()
	if len(e.Routes) != 10_001 || strings.Count(text, "\n") > 100 || !strings.Contains(text, "9991 more that do not match") || !strings.Contains(text, "… and 4975 more") {
		t.Errorf("%d routes, and a text of %d lines:\n%.3000s", len(e.Routes), strings.Count(text, "\n"), text)
	}
}
