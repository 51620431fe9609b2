package xdsresource

import (
	"strings"
	"testing"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
)

func substitute(pattern, substitution string) *matcherpb.RegexMatchAndSubstitute {
	return &matcherpb.RegexMatchAndSubstitute{Pattern: &matcherpb.RegexMatcher{Regex: pattern}, Substitution: substitution}
}

// routeWith returns a route whose action is edited.
func routeWith(match *routepb.RouteMatch, edit func(*routepb.RouteAction)) *routepb.Route {
	route := xdsmsg.Route(match, xdsmsg.ToCluster("a"))
	edit(route.GetRoute())
	return route
}

// RouteAction.prefix_rewrite and regex_rewrite, with the examples of their
// documentation.
func TestRewritePath(t *testing.T) {
	t.Parallel()
	prefix := func(with string) func(*routepb.RouteAction) {
		return func(a *routepb.RouteAction) { a.PrefixRewrite = with }
	}
	regex := func(pattern, substitution string) func(*routepb.RouteAction) {
		return func(a *routepb.RouteAction) { a.RegexRewrite = substitute(pattern, substitution) }
	}
	for _, tc := range []struct {
		given        string
		match        *routepb.RouteMatch
		edit         func(*routepb.RouteAction)
		method, want string
		broken       bool
	}{
		{given: "none", match: xdsmsg.Prefix("/a"), edit: prefix(""), method: "/a/b", want: "/a/b"},
		{given: "a prefix", match: xdsmsg.Prefix("/prefix/"), edit: prefix("/"), method: "/prefix/etc", want: "/etc"},
		{given: "a prefix that is all", match: xdsmsg.Prefix("/prefix"), edit: prefix("/"), method: "/prefix", want: "/"},
		{given: "a prefix in another case", match: caseInsensitive(xdsmsg.Prefix("/A.B/")), edit: prefix("/c.D/"), method: "/a.b/M", want: "/c.D/M"},
		{given: "a separated prefix", match: separatedMatch("/a.B"), edit: prefix("/c.D"), method: "/a.B/M", want: "/c.D/M"},
		{given: "a path", match: xdsmsg.Path("/a.B/M"), edit: prefix("/c.D/N"), method: "/a.B/M", want: "/c.D/N"},
		{given: "a regex match is replaced as a whole", match: regexMatch("/a.*"), edit: prefix("/c.D/N"), method: "/a.B/M", want: "/c.D/N"},
		{given: "a query stays", match: xdsmsg.Path("/a"), edit: prefix("/b"), method: "/a?q=/a#f", want: "/b?q=/a#f"},
		{given: "groups", match: xdsmsg.Prefix("/"), edit: regex("^/service/([^/]+)(/.*)$", `\2/instance/\1`), method: "/service/foo/v1/api", want: "/v1/api/instance/foo"},
		{given: "all matches", match: xdsmsg.Prefix("/"), edit: regex("one", "two"), method: "/xxx/one/yyy/one/zzz", want: "/xxx/two/yyy/two/zzz"},
		{given: "only the first", match: xdsmsg.Prefix("/"), edit: regex("^(.*?)one(.*)$", `\1two\2`), method: "/xxx/one/yyy/one/zzz", want: "/xxx/two/yyy/one/zzz"},
		{given: "a regex in any case", match: xdsmsg.Prefix("/"), edit: regex("(?i)/xxx/", "/yyy/"), method: "/aaa/XxX/bbb", want: "/aaa/yyy/bbb"},
		{given: "group 0, a backslash, dollars", match: xdsmsg.Prefix("/"), edit: regex("b", `[\0\\$1${2}]`), method: "/abc", want: `/a[b\$1${2}]c`},
		{given: "the query is not for the regex", match: xdsmsg.Prefix("/"), edit: regex("a", "b"), method: "/a?a", want: "/b?a"},
		{given: "no match of the regex", match: xdsmsg.Prefix("/"), edit: regex("x", "y"), method: "/a", want: "/a"},
		{given: "the result has no slash", match: xdsmsg.Prefix("/a"), edit: prefix("b"), method: "/a/b", broken: true},
		{given: "the result is empty", match: xdsmsg.Prefix("/a"), edit: regex(".*", ""), method: "/a/b", broken: true},
		{given: "the result has a blank", match: xdsmsg.Prefix("/a"), edit: prefix("/b c"), method: "/a", broken: true},
	} {
		t.Run(tc.given, func(t *testing.T) {
			t.Parallel()
			route := decodeRoutes(t, routeWith(tc.match, tc.edit)).Route(matching.RPC{Method: tc.method})
			got, ok := route.RewritePath(tc.method)
			if ok == tc.broken || ok && got != tc.want {
				t.Errorf("RewritePath(%q) = %q, %v, want %q, %v", tc.method, got, ok, tc.want, !tc.broken)
			}
		})
	}
}

func TestRewriteFaults(t *testing.T) {
	t.Parallel()
	const at = "virtual_hosts[0].routes[0].route"
	checkEach(t, "faults", func(t *testing.T, edit func(*routepb.RouteAction)) []fault {
		return decodeFaults(t, RouteConfigurationType, routeConfig(routeWith(xdsmsg.Prefix("/"), edit)))
	}, rows[func(*routepb.RouteAction), []fault]{
		{
			"two rewrites of the path",
			func(a *routepb.RouteAction) { a.PrefixRewrite, a.RegexRewrite = "/", substitute("a", "b") },
			[]fault{{at, "prefix_rewrite and regex_rewrite are both set"}},
		}, {
			"an invalid pattern", func(a *routepb.RouteAction) { a.RegexRewrite = substitute("(", "") },
			[]fault{{at + ".regex_rewrite.pattern.regex", "\"(\" is not a valid regular expression (RE2 syntax): error parsing regexp: missing closing ): `(`"}},
		}, {
			"no pattern", func(a *routepb.RouteAction) { a.RegexRewrite = &matcherpb.RegexMatchAndSubstitute{} },
			[]fault{{at + ".regex_rewrite.pattern.regex", "must not be empty"}},
		}, {
			"a group that is not there", func(a *routepb.RouteAction) { a.RegexRewrite = substitute("(a)", `\2`) },
			[]fault{{at + ".regex_rewrite.substitution", `"\\2": the pattern has no group for \2`}},
		}, {
			"half an escape", func(a *routepb.RouteAction) { a.RegexRewrite = substitute("a", `b\`) },
			[]fault{{at + ".regex_rewrite.substitution", `"b\\": a \ must be followed by a digit or another \`}},
		}, {
			"a long substitution", func(a *routepb.RouteAction) { a.RegexRewrite = substitute("a", strings.Repeat("b", 1025)) },
			[]fault{{at + ".regex_rewrite.substitution", "has 1025 bytes, more than 1024"}},
		},
	})
	t.Run("an authority with a blank", func(t *testing.T) {
		t.Parallel()
		resource := xdsmsg.Any(routeConfig(routeWith(xdsmsg.Prefix("/"), hostLiteral("a b"))))
		_, _, err := RouteConfigurationType.Decode(resource, trusted)
		if err == nil || err.Error() != at+`.host_rewrite_literal: "a b" is not an authority` {
			t.Errorf("Decode = %v, want that it is not an authority", err)
		}
	})
}

func hostLiteral(authority string) func(*routepb.RouteAction) {
	return func(a *routepb.RouteAction) {
		a.HostRewriteSpecifier = &routepb.RouteAction_HostRewriteLiteral{HostRewriteLiteral: authority}
	}
}

func hostHeader(name string) func(*routepb.RouteAction) {
	return func(a *routepb.RouteAction) {
		a.HostRewriteSpecifier = &routepb.RouteAction_HostRewriteHeader{HostRewriteHeader: name}
	}
}

func autoHost(yes bool) func(*routepb.RouteAction) {
	return func(a *routepb.RouteAction) {
		a.HostRewriteSpecifier = &routepb.RouteAction_AutoHostRewrite{AutoHostRewrite: wrapperspb.Bool(yes)}
	}
}

// RouteAction.host_rewrite_specifier, and gRFC A81, "xDS Resource Validation":
// only from a trusted_xds_server.
func TestRewriteAuthority(t *testing.T) {
	t.Parallel()
	rpc := matching.RPC{Authority: "old", Metadata: func() metadata.MD {
		return metadata.Pairs("h", "first", "h", "second", "bad", "a b", "empty", "", "h-bin", "x")
	}}
	for _, tc := range []struct {
		given   string
		edit    func(*routepb.RouteAction)
		cluster string
		want    string
		auto    bool
		field   string // what is left out if the server is not trusted
	}{
		{given: "none", edit: func(*routepb.RouteAction) {}},
		{given: "a literal", edit: hostLiteral("new:80"), want: "new:80", field: "host_rewrite_literal"},
		{given: "an empty literal", edit: hostLiteral("")},
		{given: "a header, of which the first value counts", edit: hostHeader("H"), want: "first", field: "host_rewrite_header"},
		{given: "a missing header", edit: hostHeader("none"), field: "host_rewrite_header"},
		{given: "an empty header", edit: hostHeader("empty"), field: "host_rewrite_header"},
		{given: "a binary header", edit: hostHeader("h-bin"), field: "host_rewrite_header"},
		{given: "a header that is no authority", edit: hostHeader("bad"), field: "host_rewrite_header"},
		{given: "auto", edit: autoHost(true), auto: true, field: "auto_host_rewrite"},
		{given: "auto: false", edit: autoHost(false)},
		{given: "that of the cluster", edit: func(*routepb.RouteAction) {}, cluster: "c", want: "c"},
		{given: "that of the cluster if the header is missing", edit: hostHeader("none"), cluster: "c", want: "c", field: "host_rewrite_header"},
		{given: "that of the cluster is carried out before that of the route", edit: hostLiteral("new"), cluster: "c", want: "new", field: "host_rewrite_literal"},
		{given: "that of the cluster beside auto", edit: autoHost(true), cluster: "c", want: "c", auto: true, field: "auto_host_rewrite"},
	} {
		t.Run(tc.given, func(t *testing.T) {
			t.Parallel()
			action := weightedAction(weighted{"a", 1})
			if tc.cluster != "" {
				action.GetWeightedClusters().Clusters[0].HostRewriteSpecifier = &routepb.WeightedCluster_ClusterWeight_HostRewriteLiteral{HostRewriteLiteral: tc.cluster}
			}
			tc.edit(action)
			config := routeConfig(xdsmsg.Route(xdsmsg.Prefix("/"), action))
			check := func(rc *RouteConfiguration, want string, auto bool) {
				route := rc.VirtualHosts[0].Routes[0]
				if got := route.RewriteAuthority(&rpc, &route.Action.(*Forward).Clusters[0]); got != want {
					t.Errorf("RewriteAuthority = %q, want %q", got, want)
				}
				if got := route.Rewrite != nil && route.Rewrite.AutoHost; got != auto {
					t.Errorf("AutoHost = %v, want %v", got, auto)
				}
			}
			rc := mustDecodeRoutes(t, config)
			check(rc, tc.want, tc.auto)
			checkIgnored(t, rc.Ignored)

			untrusted := mustDecode[RouteConfiguration](t, RouteConfigurationType, config)
			check(untrusted, "", false)
			var paths, want []string
			for _, i := range untrusted.Ignored {
				paths = append(paths, i.Path)
			}
			if tc.field != "" {
				want = append(want, "virtual_hosts[0].routes[0].route."+tc.field)
			}
			if tc.cluster != "" {
				want = append(want, "virtual_hosts[0].routes[0].route.weighted_clusters.clusters[0].host_rewrite_literal")
			}
			xdstest.Equal(t, "left out because the server is not trusted", want, paths)
		})
	}
}

func TestHostnameOfEndpoint(t *testing.T) {
	t.Parallel()
	named, broken := host("1.1.1.1"), host("1.1.1.2")
	named.GetEndpoint().Hostname = "backend.example.com:443"
	e := mustDecode[Endpoints](t, EndpointsType, assignment(locality("a", 0, 1, named)))
	if got := e.Localities[0].Endpoints[0].Hostname; got != "backend.example.com:443" {
		t.Errorf("Hostname = %q (gRFC A81)", got)
	}
	broken.GetEndpoint().Hostname = "a b"
	checkFaults(t, EndpointsType, assignment(locality("a", 0, 1, broken)), []fault{{
		"endpoints[0].lb_endpoints[0].endpoint.hostname", `"a b" has a blank or control character in it`,
	}})
}
