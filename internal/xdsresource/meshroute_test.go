package xdsresource

import (
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// MADR-mesh-http-route, "Matching": everything that a rule can match, as a
// control plane writes it for Envoy.
func TestMeshHTTPRouteMatches(t *testing.T) {
	t.Parallel()
	headers := func(h ...*routepb.HeaderMatcher) *routepb.RouteMatch {
		m := xdsmsg.Prefix("/")
		m.Headers = h
		return m
	}
	text := func(m *matcherpb.StringMatcher) *routepb.RouteMatch { return headers(stringHeader("h", m)) }
	re := func(pattern string) *matcherpb.StringMatcher {
		return &matcherpb.StringMatcher{MatchPattern: &matcherpb.StringMatcher_SafeRegex{SafeRegex: &matcherpb.RegexMatcher{Regex: pattern}}}
	}
	is := func(value string) *matcherpb.StringMatcher {
		return &matcherpb.StringMatcher{MatchPattern: &matcherpb.StringMatcher_Exact{Exact: value}}
	}
	starts := &matcherpb.StringMatcher{MatchPattern: &matcherpb.StringMatcher_Prefix{Prefix: "v"}}
	query := func(q *routepb.QueryParameterMatcher) *routepb.RouteMatch {
		m := xdsmsg.Prefix("/")
		m.QueryParameters = []*routepb.QueryParameterMatcher{q}
		return m
	}
	rpc := func(method string, pairs ...string) matching.RPC {
		return matching.RPC{Method: method, Metadata: func() metadata.MD { return metadata.Pairs(pairs...) }}
	}
	for _, tc := range []struct {
		given   string
		match   *routepb.RouteMatch
		yes, no matching.RPC
	}{
		{"headers: presence", headers(present("h", true)), rpc("/s/m", "h", ""), rpc("/s/m")},
		{"headers: absence", headers(inverted(present("h", true))), rpc("/s/m"), rpc("/s/m", "h", "")},
		{"headers: exact value", text(is("v1")), rpc("/s/m", "h", "v1"), rpc("/s/m", "h", "v2")},
		{"headers: prefix value", text(starts), rpc("/s/m", "h", "v1"), rpc("/s/m", "h", "1v")},
		{"headers: regex value", text(re("v[0-9]")), rpc("/s/m", "h", "v1"), rpc("/s/m", "h", "v10")},
		{"path: RegularExpression", regexMatch("/s/.*"), rpc("/s/m"), rpc("/t/m")},
		{"path: Exact", xdsmsg.Path("/s/m"), rpc("/s/m"), rpc("/s/mm")},
		{"path: Prefix", separatedMatch("/s"), rpc("/s/m"), rpc("/st/m")},
		{"method", headers(stringHeader(":method", is("POST"))), rpc("/s/m"), rpc("")},
		{"query parameters: RegularExpression", query(stringQuery("q", re("1+"))), rpc("/s/m?q=11"), rpc("/s/m?q=12")},
		{"query parameters: Exact", query(stringQuery("q", is("1"))), rpc("/s/m?q=1"), rpc("/s/m")},
		{"all of the conditions", headers(present("a", true), present("b", true)), rpc("/s/m", "a", "", "b", ""), rpc("/s/m", "a", "")},
	} {
		t.Run(tc.given, func(t *testing.T) {
			t.Parallel()
			vh := decodeRoutes(t, xdsmsg.Route(tc.match, xdsmsg.ToCluster("a")))
			if vh.Route(tc.yes) == nil {
				t.Errorf("%+v does not match", tc.yes)
			}
			if vh.Route(tc.no) != nil {
				t.Errorf("%+v matches", tc.no)
			}
		})
	}
	t.Run("a method other than POST", func(t *testing.T) {
		t.Parallel()
		vh := decodeRoutes(t, xdsmsg.Route(headers(stringHeader(":method", is("GET"))), xdsmsg.ToCluster("a")))
		if vh.Route(rpc("/s/m")) != nil {
			t.Error("a gRPC RPC is taken for a GET")
		}
	})
	t.Run("any one of the matches", func(t *testing.T) {
		t.Parallel()
		vh := decodeRoutes(t, xdsmsg.Route(xdsmsg.Path("/s/a"), xdsmsg.ToCluster("a")), xdsmsg.Route(xdsmsg.Path("/s/b"), xdsmsg.ToCluster("a")))
		for method, want := range map[string]bool{"/s/a": true, "/s/b": true, "/s/c": false} {
			if got := vh.Route(rpc(method)) != nil; got != want {
				t.Errorf("%s matches: %v, want %v", method, got, want)
			}
		}
	})
}

// MADR-mesh-http-route, "Request modification" and "Routing": every filter,
// and weighted backends.
func TestMeshHTTPRouteFilters(t *testing.T) {
	t.Parallel()
	rpc := &matching.RPC{Method: "/s/m", Authority: "old"}
	set, add := option("set", "2", overwriteOrAdd), option("add", "2", appendOrAdd)
	edited := metadata.MD{"set": {"2"}, "add": {"1", "2"}}
	before := func() metadata.MD { return metadata.Pairs("set", "1", "add", "1", "remove", "1") }
	withHeaders := func(route *routepb.Route) *routepb.Route {
		route.RequestHeadersToAdd, route.RequestHeadersToRemove = []*corepb.HeaderValueOption{set, add}, []string{"remove"}
		route.ResponseHeadersToAdd, route.ResponseHeadersToRemove = []*corepb.HeaderValueOption{set, add}, []string{"remove"}
		return route
	}
	for _, tc := range []struct {
		given string
		route *routepb.Route
		check func(*testing.T, *Route)
	}{
		{"RequestHeaderModifier", withHeaders(xdsmsg.PrefixRoute("/", "a")), func(t *testing.T, r *Route) {
			md := before()
			r.HeadersFor(nil).Request.Apply(md)
			xdstest.Equal(t, "request metadata", edited, md)
		}},
		{"ResponseHeaderModifier", withHeaders(xdsmsg.PrefixRoute("/", "a")), func(t *testing.T, r *Route) {
			md := before()
			r.HeadersFor(nil).Response.Apply(md)
			xdstest.Equal(t, "response metadata", edited, md)
		}},
		{"RequestMirror", routeWith(xdsmsg.Prefix("/"), func(a *routepb.RouteAction) {
			a.RequestMirrorPolicies = []*routepb.RouteAction_RequestMirrorPolicy{mirrorTo("copy")}
		}), func(t *testing.T, r *Route) {
			if len(r.Mirrors) != 1 || r.Mirrors[0].Target(rpc) != "copy" || !r.Mirrors[0].Draw(rpc) {
				t.Errorf("Mirrors = %+v", r.Mirrors)
			}
		}},
		{"RequestRedirect", &routepb.Route{Match: xdsmsg.Prefix("/"), Action: &routepb.Route_Redirect{Redirect: &routepb.RedirectAction{
			SchemeRewriteSpecifier: &routepb.RedirectAction_SchemeRedirect{SchemeRedirect: "https"},
			HostRedirect:           "new", PortRedirect: 8443, ResponseCode: routepb.RedirectAction_FOUND,
			PathRewriteSpecifier: &routepb.RedirectAction_PathRedirect{PathRedirect: "/x"},
		}}}, func(t *testing.T, r *Route) {
			redirect := r.Action.(*Redirect)
			if got := redirect.Location(&r.Match, rpc); redirect.HTTPStatus != 302 || got != "https://new:8443/x" {
				t.Errorf("status %d, location %q", redirect.HTTPStatus, got)
			}
		}},
		{"URLRewrite: hostname", routeWith(xdsmsg.Prefix("/"), hostLiteral("new")), func(t *testing.T, r *Route) {
			if got := r.RewriteAuthority(rpc, &r.Action.(*Forward).Clusters[0]); got != "new" {
				t.Errorf("authority = %q", got)
			}
		}},
		{"URLRewrite: replaceFullPath", routeWith(xdsmsg.Prefix("/"), func(a *routepb.RouteAction) {
			a.RegexRewrite = substitute(".+", "/t/n")
		}), func(t *testing.T, r *Route) {
			if got, ok := r.RewritePath(rpc.Method); got != "/t/n" || !ok {
				t.Errorf("path = %q, %v", got, ok)
			}
		}},
		{"URLRewrite: replacePrefixMatch", routeWith(separatedMatch("/s"), func(a *routepb.RouteAction) {
			a.PrefixRewrite = "/t"
		}), func(t *testing.T, r *Route) {
			if got, ok := r.RewritePath(rpc.Method); got != "/t/m" || !ok {
				t.Errorf("path = %q, %v", got, ok)
			}
		}},
		{"backendRefs", xdsmsg.Route(xdsmsg.Prefix("/"), weightedAction(weighted{"a", 90}, weighted{"b", 10})), func(t *testing.T, r *Route) {
			want := &Forward{Clusters: []WeightedCluster{{Name: "a", Weight: 90}, {Name: "b", Weight: 10}}, TotalWeight: 100}
			xdstest.Equal(t, "Action", Action(want), r.Action)
		}},
	} {
		t.Run(tc.given, func(t *testing.T) {
			t.Parallel()
			rc := mustDecodeRoutes(t, routeConfig(tc.route))
			checkIgnored(t, rc.Ignored)
			tc.check(t, rc.VirtualHosts[0].Route(*rpc))
		})
	}
}
