//lint:file-ignore SA1019 Control planes still send the deprecated fields, and gRPC reads them.

package xdsresource

import (
	"math"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
)

func caseInsensitive(m *routepb.RouteMatch) *routepb.RouteMatch {
	m.CaseSensitive = wrapperspb.Bool(false)
	return m
}

// checkMatches checks for which RPCs a virtual host has a route.
func checkMatches[V any](t *testing.T, vh *VirtualHost, rpc func(V) matching.RPC, yes, no []V) {
	t.Helper()
	for _, v := range yes {
		if vh.Route(rpc(v)) == nil {
			t.Errorf("%#v does not match", v)
		}
	}
	for _, v := range no {
		if vh.Route(rpc(v)) != nil {
			t.Errorf("%#v matches", v)
		}
	}
}

func byMethod(method string) matching.RPC { return matching.RPC{Method: method} }

// gRFC A28, "Response validation" and "Picking", and Envoy's RouteMatch.
func TestPathMatch(t *testing.T) {
	t.Parallel()
	const folded = ` case_sensitive{}`
	for _, tc := range []struct {
		given, match string
		yes, no      []string
	}{
		{"the empty prefix", `prefix:""`, []string{"", "/", "/a/b"}, nil},
		{"a prefix", `prefix:"/a.B/"`, []string{"/a.B/", "/a.B/m"}, []string{"/a.B", "/a.b/m", "/x/a.B/"}},
		{"a prefix, case_sensitive", `prefix:"/A" case_sensitive{value:true}`, []string{"/A"}, []string{"/a"}},
		{"a prefix, not case_sensitive", `prefix:"/a.B/"` + folded, []string{"/A.b/", "/a.B/m"}, []string{"/a.B", "/aXB/m"}},
		{"a path", `path:"/a.B/m"`, []string{"/a.B/m"}, []string{"/a.B/", "/a.B/mm", "/a.b/m"}},
		{"a path, not case_sensitive", `path:"/a.B/m"` + folded, []string{"/a.B/m", "/A.B/M"}, []string{"/a.B/mm", "/a.B/", "/"}},
		{"only ASCII letters are folded", `path:"/É"` + folded, []string{"/É"}, []string{"/é"}},
		{"a regex is for the whole path", `safe_regex{regex:"/a|/b.*"}`, []string{"/a", "/b", "/bc"}, []string{"/ac", "x/a", "x/b"}},
		{"a regex with anchors", `safe_regex{regex:"^/a$"}`, []string{"/a"}, []string{"/a\n", "/a/"}},
		{"a regex that has its own case", `safe_regex{regex:"(?i)/A"}`, []string{"/a", "/A"}, []string{"/b"}},
		{"a regex is not concerned by case_sensitive", `safe_regex{regex:"/A"}` + folded, []string{"/A"}, []string{"/a"}},
		{"a regex for U+FFFD, which is also what is not UTF-8", `safe_regex{regex:"/\uFFFD.*"}`, []string{"/\uFFFD", "/\xffb"}, []string{"/b"}},
		{"a separated prefix", `path_separated_prefix:"/a.B"`,
			[]string{"/a.B", "/a.B/", "/a.B/m", "/a.B?q"}, []string{"/a.Bc", "/a", "/a.b/m", "/x/a.B"}},
		{"a separated prefix, not case_sensitive", `path_separated_prefix:"/a.B"` + folded, []string{"/A.b", "/A.B/m"}, []string{"/A.BC", "/a"}},
		{"a query is not part of a prefix", `prefix:"/a?"`, nil, []string{"/a?q=1", "/a"}},
		{"a query is not part of a path", `path:"/a"`, []string{"/a", "/a?q=1", "/a#f", "/a#f?q", "/a?q#f"}, []string{"/a/?q"}},
		{"a query is not part of what a regex matches", `safe_regex{regex:"/[a-z]"}`, []string{"/a?q=1"}, []string{"/ab?q"}},
		{"grpc, tls_context: ignored (gRFC A28)", `prefix:"/" grpc{} tls_context{presented{value:true}}`, []string{"/a/b"}, nil},
	} {
		xdstest.Parallel(t, tc.given, func(t *testing.T) {
			checkMatches(t, decodeRoutes(t, matchedBy(t, tc.match)), byMethod, tc.yes, tc.no)
		})
	}
}

func separatedMatch(prefix string) *routepb.RouteMatch {
	return &routepb.RouteMatch{PathSpecifier: &routepb.RouteMatch_PathSeparatedPrefix{PathSeparatedPrefix: prefix}}
}

func stringQuery(name string, m *matcherpb.StringMatcher) *routepb.QueryParameterMatcher {
	return &routepb.QueryParameterMatcher{Name: name, QueryParameterMatchSpecifier: &routepb.QueryParameterMatcher_StringMatch{StringMatch: m}}
}

func queryPresent(name string, yes bool) *routepb.QueryParameterMatcher {
	return &routepb.QueryParameterMatcher{Name: name, QueryParameterMatchSpecifier: &routepb.QueryParameterMatcher_PresentMatch{PresentMatch: yes}}
}

// gRFC A28: a route with query_parameters matches no method without a query;
// with one, Envoy's QueryParameterMatcher.
func TestQueryMatch(t *testing.T) {
	t.Parallel()
	const exactly, yes, no = ` string_match{exact:"`, ` present_match:true`, ` present_match:false`
	for _, tc := range []struct {
		given, parameter string
		yes, no          []string
	}{
		{"exact", `name:"q"` + exactly + `1"}`, []string{"/m?q=1", "/m?a=2&q=1", "/m?q=1&q=2", "/m?q=1#f"},
			[]string{"/m", "/m?", "/m?q", "/m?q=2&q=1", "/m?Q=1", "/m#f?q=1", "/m#?q=1"}},
		{"exact, empty", `name:"q"` + exactly + `"}`, []string{"/m?q", "/m?q="}, []string{"/m?a", "/m"}},
		{"no percent decoding", `name:"q"` + exactly + `a%20b"}`, []string{"/m?q=a%20b"}, []string{"/m?q=a b"}},
		{"a value with =", `name:"q"` + exactly + `a=b"}`, []string{"/m?q=a=b"}, nil},
		{"regex", `name:"q" string_match{safe_regex{regex:"[0-9]+"}}`, []string{"/m?q=12"}, []string{"/m?q=12x", "/m?q="}},
		{"prefix ignoring case", `name:"q" string_match{prefix:"aB" ignore_case:true}`, []string{"/m?q=AbC"}, []string{"/m?q=b"}},
		{"present", `name:"q"` + yes, []string{"/m?q", "/m?q=1", "/m?&q"}, []string{"/m?a=q", "/m"}},
		{"not present", `name:"q"` + no, []string{"/m?a", "/m?"}, []string{"/m?q", "/m"}},
		{"neither", `name:"q"`, []string{"/m?q"}, []string{"/m?a", "/m"}},
		{"all have to match", `name:"a"` + yes + `} query_parameters{name:"b"` + yes, []string{"/m?b&a"}, []string{"/m?a", "/m?b"}},
	} {
		xdstest.Parallel(t, tc.given, func(t *testing.T) {
			vh := decodeRoutes(t, matchedBy(t, `path:"/m" query_parameters{`+tc.parameter+`}`))
			checkMatches(t, vh, byMethod, tc.yes, tc.no)
		})
	}
	const at = firstRoute + ".match.query_parameters"
	xdstest.Equal(t, "faults", at+"[0].name: must not be empty; "+
		at+"[1].string_match: match_pattern must be exact, prefix, suffix, contains or safe_regex, is not set",
		faultText(t, RouteConfigurationType, routeConfig(matchedBy(t,
			`query_parameters{present_match:true} query_parameters{name:"q" string_match{}}`))))
}

// Envoy's HeaderMatcher also sees the headers that gRPC fills in.
func TestHeadersThatGRPCFillsIn(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		header, value string
		rpc           matching.RPC
	}{
		{":method", "POST", matching.RPC{}},
		{":path", "/s/m?q=1", matching.RPC{Method: "/s/m?q=1"}},
		{":authority", "a:80", matching.RPC{Authority: "a:80"}},
		{"host", "a:80", matching.RPC{Authority: "a:80"}},
		{"Host", "a:80", matching.RPC{Authority: "a:80"}},
		{":scheme", "http", matching.RPC{}},
		{":scheme", "https", matching.RPC{Scheme: "https"}},
		{"content-type", "application/grpc", matching.RPC{}},
		{"content-type", "application/grpc+json", matching.RPC{ContentType: "application/grpc+json"}},
	} {
		xdstest.Parallel(t, tc.header+"="+tc.value, func(t *testing.T) {
			is, isNot := xdsmsg.Prefix(""), xdsmsg.Prefix("")
			is.Headers = []*routepb.HeaderMatcher{exact(tc.header, tc.value)}
			isNot.Headers = []*routepb.HeaderMatcher{present(tc.header, false)}
			vh := decodeRoutes(t, xdsmsg.Route(isNot, xdsmsg.ToCluster("b")), xdsmsg.Route(is, xdsmsg.ToCluster("a")))
			tc.rpc.Metadata = func() metadata.MD { t.Error("asked for metadata"); return nil }
			if got := vh.Route(tc.rpc); got != vh.Routes[1] {
				t.Errorf("got %v, want the route for the header", got)
			}
		})
	}
	get := xdsmsg.Prefix("")
	get.Headers = []*routepb.HeaderMatcher{exact(":method", "GET")}
	if vh := decodeRoutes(t, xdsmsg.Route(get, xdsmsg.ToCluster("a"))); vh.Route(matching.RPC{}) != nil {
		t.Error("an RPC has the method GET")
	}
	missing := xdsmsg.Prefix("")
	missing.Headers = []*routepb.HeaderMatcher{present(":authority", false), present(":unknown", false)}
	if vh := decodeRoutes(t, xdsmsg.Route(missing, xdsmsg.ToCluster("a"))); vh.Route(matching.RPC{}) == nil {
		t.Error("an RPC without authority has the header :authority, or :unknown")
	}
}

func stringHeader(name string, m *matcherpb.StringMatcher) *routepb.HeaderMatcher {
	return &routepb.HeaderMatcher{Name: name, HeaderMatchSpecifier: &routepb.HeaderMatcher_StringMatch{StringMatch: m}}
}

func present(name string, yes bool) *routepb.HeaderMatcher {
	return &routepb.HeaderMatcher{Name: name, HeaderMatchSpecifier: &routepb.HeaderMatcher_PresentMatch{PresentMatch: yes}}
}

func exact(name, value string) *routepb.HeaderMatcher {
	return &routepb.HeaderMatcher{Name: name, HeaderMatchSpecifier: &routepb.HeaderMatcher_ExactMatch{ExactMatch: value}}
}

func inRange(name string, start, end int64) *routepb.HeaderMatcher {
	return &routepb.HeaderMatcher{Name: name, HeaderMatchSpecifier: &routepb.HeaderMatcher_RangeMatch{RangeMatch: &typepb.Int64Range{Start: start, End: end}}}
}

// gRFC A28 (header_match_specifier, invert_match) and Envoy's HeaderMatcher.
func TestHeaderMatch(t *testing.T) {
	t.Parallel()
	h := func(values ...string) metadata.MD { return metadata.MD{"h": values} }
	type mds = []metadata.MD
	for _, tc := range []struct {
		given, header string
		yes, no       mds
	}{
		{"string exact", `name:"h" string_match{exact:"Ab"}`, mds{h("Ab")}, mds{h("ab"), h("Abc"), h("Ab", "Ab"), nil}},
		{"string exact ignoring case", `name:"h" string_match{exact:"Ab" ignore_case:true}`, mds{h("Ab"), h("aB")}, mds{h("abc")}},
		{"string exact, empty", `name:"h" string_match{exact:""}`, mds{h("")}, mds{h("a"), h(), nil}},
		{"string prefix", `name:"h" string_match{prefix:"A"}`, mds{h("A"), h("Ab"), h("A", "x")}, mds{h("a"), h("bA")}},
		{"string suffix ignoring case", `name:"h" string_match{suffix:"Z" ignore_case:true}`, mds{h("z"), h("aZ")}, mds{h("za")}},
		{"string contains", `name:"h" string_match{contains:"m"}`, mds{h("ama")}, mds{h("aMa"), h("")}},
		{"string regex, whole value", `name:"h" string_match{safe_regex{regex:"a+"}}`, mds{h("aa")}, mds{h("ba"), h("ab")}},
		{"string regex has its own case", `name:"h" string_match{safe_regex{regex:"a+"} ignore_case:true}`, mds{h("a")}, mds{h("A")}},
		{"deprecated exact", `name:"h" exact_match:"v"`, mds{h("v")}, mds{h("w"), nil}},
		{"several values are joined", `name:"h" exact_match:"a,b"`, mds{h("a", "b"), h("a,b")}, mds{h("a"), h("b", "a")}},
		{"the name in upper case", `name:"H" exact_match:"v"`, mds{h("v")}, mds{h("w")}},
		{"deprecated prefix", `name:"h" prefix_match:"p"`, mds{h("pq")}, mds{h("qp")}},
		{"deprecated suffix", `name:"h" suffix_match:"p"`, mds{h("qp")}, mds{h("pq")}},
		{"deprecated contains", `name:"h" contains_match:"p"`, mds{h("opq")}, mds{h("q")}},
		{"deprecated regex", `name:"h" safe_regex_match{regex:"a+"}`, mds{h("aa")}, mds{h("ab")}},
		{"range", `name:"h" range_match{start:-1 end:3}`, mds{h("-1"), h("0"), h("2")},
			mds{h("3"), h("-2"), h("x"), h("1.0"), h(""), h("1", "2"), nil}},
		{"range inverted", `name:"h" range_match{start:0 end:3} invert_match:true`, mds{h("3"), h("x")}, mds{h("0"), nil}},
		{"present", `name:"h" present_match:true`, mds{h("x"), h("")}, mds{h(), nil}},
		{"not present", `name:"h" present_match:false`, mds{nil, h()}, mds{h("x")}},
		{"present inverted", `name:"h" present_match:true invert_match:true`, mds{nil}, mds{h("x")}},
		{"not present inverted", `name:"h" present_match:false invert_match:true`, mds{h("x")}, mds{nil}},
		{"inverted: a missing header does not match", `name:"h" exact_match:"v" invert_match:true`, mds{h("w"), h("")}, mds{h("v"), nil}},
		{"missing as empty", `name:"h" exact_match:"" treat_missing_header_as_empty:true`, mds{nil, h("")}, mds{h("v")}},
		{"missing as empty, inverted", `name:"h" exact_match:"v" invert_match:true treat_missing_header_as_empty:true`,
			mds{nil, h("w")}, mds{h("v")}},
		{"missing as empty does not make a header present", `name:"h" present_match:true treat_missing_header_as_empty:true`,
			mds{h("")}, mds{nil}},
		{"a binary header is never there", `name:"h-bin" present_match:true`, nil, mds{{"h-bin": {"x"}}}},
		{"a binary header is never there, asked for as such", `name:"h-bin" present_match:false`, mds{{"h-bin": {"x"}}}, nil},
		{"another content-type than that of the RPC", `name:"content-type" exact_match:"application/grpc+json"`, nil, mds{nil}},
		{"content-type as gRPC sends it", `name:"content-type" exact_match:"application/grpc"`, mds{nil, {"content-type": {"x"}}}, nil},
		{"all have to match", `name:"h" exact_match:"1"} headers{name:"b" exact_match:"2"`,
			mds{metadata.Pairs("h", "1", "b", "2")}, mds{metadata.Pairs("h", "1", "b", "3"), metadata.Pairs("b", "2")}},
	} {
		xdstest.Parallel(t, tc.given, func(t *testing.T) {
			vh := decodeRoutes(t, matchedBy(t, `headers{`+tc.header+`}`))
			checkMatches(t, vh, func(md metadata.MD) matching.RPC {
				return matching.RPC{Method: "/s/m", Metadata: func() metadata.MD { return md }}
			}, tc.yes, tc.no)
		})
	}
}

func runtimeFraction(n uint32, of typepb.FractionalPercent_DenominatorType) *corepb.RuntimeFractionalPercent {
	return &corepb.RuntimeFractionalPercent{DefaultValue: &typepb.FractionalPercent{Numerator: n, Denominator: of}, RuntimeKey: "ignored"}
}

func TestRuntimeFraction(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		given, fraction string
		want            uint32
	}{
		{"nothing", ``, 0},
		{"per hundred", `numerator:25`, 250_000},
		{"per ten thousand", `numerator:25 denominator:TEN_THOUSAND`, 2_500},
		{"per matching.Million", `numerator:25 denominator:MILLION`, 25},
		{"all", `numerator:100`, matching.Million},
		{"more than all", `numerator:4294967295`, matching.Million},
	} {
		xdstest.Parallel(t, tc.given, func(t *testing.T) {
			some := matchedBy(t, `runtime_fraction{runtime_key:"ignored" default_value{`+tc.fraction+`}}`)
			vh := decodeRoutes(t, some, xdsmsg.PrefixRoute("/", "rest"))
			if got := *vh.Routes[0].Match.Conditions().FractionPerMillion; got != tc.want {
				t.Fatalf("FractionPerMillion = %d, want %d", got, tc.want)
			}
			for _, draw := range []uint32{0, 24, 25, 249_999, 250_000, matching.Million - 1} {
				want := vh.Routes[1]
				if draw < tc.want {
					want = vh.Routes[0]
				}
				random := func() uint64 { return 3*matching.Million + uint64(draw) }
				if got := vh.Route(matching.RPC{Method: "/", Random: random}); got != want {
					t.Errorf("draw %d: got the route to %v, want %v", draw, got.Action, want.Action)
				}
			}
		})
	}
}

func TestRuntimeFractionDrawsByItself(t *testing.T) {
	t.Parallel()
	vh := decodeRoutes(t, matchedBy(t, `runtime_fraction{default_value{numerator:50}}`))
	const draws = 100_000
	n := 0
	for range draws {
		if vh.Route(matching.RPC{Method: "/"}) != nil {
			n++
		}
	}
	// 6 standard deviations of a binomial distribution: sqrt(n)/2 each.
	if bound := 6 * math.Sqrt(draws) / 2; math.Abs(float64(n)-draws/2) > bound {
		t.Errorf("%d of %d RPCs match, want half of them within %.0f", n, draws, bound)
	}
}

func TestRouteAsksForNoMoreThanItNeeds(t *testing.T) {
	t.Parallel()
	const both = `prefix:"/h/" headers{name:"a" exact_match:"1"} headers{name:"b" exact_match:"1"}`
	vh := decodeRoutes(t, matchedBy(t, both), matchedBy(t, both),
		matchedBy(t, `prefix:"/f/" headers{name:"a" exact_match:"1"} runtime_fraction{default_value{numerator:100}}`),
		matchedBy(t, `prefix:"/c/" headers{name:"content-type" exact_match:"x"} headers{name:"x-bin" present_match:true}`),
		xdsmsg.PrefixRoute("/", "a"))
	for _, tc := range []struct {
		method         string
		md             metadata.MD
		copies, random int
	}{
		{method: "/other/m"},
		{method: "/c/m"},
		{method: "/h/m", md: metadata.Pairs("a", "1"), copies: 1},
		{method: "/f/m", copies: 1},
		{method: "/f/m", md: metadata.Pairs("a", "1"), copies: 1, random: 1},
	} {
		copies, random := 0, 0
		vh.Route(matching.RPC{
			Method:   tc.method,
			Metadata: func() metadata.MD { copies++; return tc.md },
			Random:   func() uint64 { random++; return 0 },
		})
		if copies != tc.copies || random != tc.random {
			t.Errorf("%s with %v: metadata copied %d times and %d draws, want %d and %d", tc.method, tc.md, copies, random, tc.copies, tc.random)
		}
	}
}
