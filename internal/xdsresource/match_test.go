//lint:file-ignore SA1019 Control planes still send the deprecated fields, and gRPC reads them.

package xdsresource

import (
	"fmt"
	"math"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
)

func caseInsensitive(m *routepb.RouteMatch) *routepb.RouteMatch {
	m.CaseSensitive = wrapperspb.Bool(false)
	return m
}

func caseSensitive(m *routepb.RouteMatch) *routepb.RouteMatch {
	m.CaseSensitive = wrapperspb.Bool(true)
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
	for _, tc := range []struct {
		given string
		match *routepb.RouteMatch
		yes   []string
		no    []string
	}{
		{"the empty prefix", xdsmsg.Prefix(""), []string{"", "/", "/a/b"}, nil},
		{"a prefix", xdsmsg.Prefix("/a.B/"), []string{"/a.B/", "/a.B/m"}, []string{"/a.B", "/a.b/m", "/x/a.B/"}},
		{"a prefix, case_sensitive", caseSensitive(xdsmsg.Prefix("/A")), []string{"/A"}, []string{"/a"}},
		{"a prefix, not case_sensitive", caseInsensitive(xdsmsg.Prefix("/a.B/")), []string{"/A.b/", "/a.B/m"}, []string{"/a.B", "/aXB/m"}},
		{"a path", xdsmsg.Path("/a.B/m"), []string{"/a.B/m"}, []string{"/a.B/", "/a.B/mm", "/a.b/m"}},
		{"a path, not case_sensitive", caseInsensitive(xdsmsg.Path("/a.B/m")), []string{"/a.B/m", "/A.B/M"}, []string{"/a.B/mm", "/a.B/", "/"}},
		{"only ASCII letters are folded", caseInsensitive(xdsmsg.Path("/É")), []string{"/É"}, []string{"/é"}},
		{"a regex is for the whole path", regexMatch("/a|/b.*"), []string{"/a", "/b", "/bc"}, []string{"/ac", "x/a", "x/b"}},
		{"a regex with anchors", regexMatch("^/a$"), []string{"/a"}, []string{"/a\n", "/a/"}},
		{"a regex that has its own case", regexMatch("(?i)/A"), []string{"/a", "/A"}, []string{"/b"}},
		{"a regex is not concerned by case_sensitive", caseInsensitive(regexMatch("/A")), []string{"/A"}, []string{"/a"}},
		{"a regex for U+FFFD, which is also what is not UTF-8", regexMatch("/\uFFFD.*"), []string{"/\uFFFD", "/\xffb"}, []string{"/b"}},
		{"a separated prefix", separatedMatch("/a.B"), []string{"/a.B", "/a.B/", "/a.B/m", "/a.B?q"}, []string{"/a.Bc", "/a", "/a.b/m", "/x/a.B"}},
		{"a separated prefix, not case_sensitive", caseInsensitive(separatedMatch("/a.B")), []string{"/A.b", "/A.B/m"}, []string{"/A.BC", "/a"}},
		{"a query is not part of a prefix", xdsmsg.Prefix("/a?"), nil, []string{"/a?q=1", "/a"}},
		{"a query is not part of a path", xdsmsg.Path("/a"), []string{"/a", "/a?q=1", "/a#f", "/a#f?q", "/a?q#f"}, []string{"/a/?q"}},
		{"a query is not part of what a regex matches", regexMatch("/[a-z]"), []string{"/a?q=1"}, []string{"/ab?q"}},
		{"grpc, tls_context: ignored (gRFC A28)", &routepb.RouteMatch{
			PathSpecifier: &routepb.RouteMatch_Prefix{Prefix: "/"},
			Grpc:          &routepb.RouteMatch_GrpcRouteMatchOptions{},
			TlsContext:    &routepb.RouteMatch_TlsContextMatchOptions{Presented: wrapperspb.Bool(true)},
		}, []string{"/a/b"}, nil},
	} {
		xdstest.Parallel(t, tc.given, func(t *testing.T) {
			vh := decodeRoutes(t, xdsmsg.Route(tc.match, xdsmsg.ToCluster("a")))
			checkMatches(t, vh, byMethod, tc.yes, tc.no)
		})
	}
}

func separatedMatch(prefix string) *routepb.RouteMatch {
	return &routepb.RouteMatch{PathSpecifier: &routepb.RouteMatch_PathSeparatedPrefix{PathSeparatedPrefix: prefix}}
}

func TestPathSeparatedPrefixFaults(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"", "/", "/a/", "/a?b", "/a#b"} {
		checkFaults(t, RouteConfigurationType, routeConfig(xdsmsg.Route(separatedMatch(prefix), xdsmsg.ToCluster("a"))), []fault{{
			"virtual_hosts[0].routes[0].match.path_separated_prefix", faults.Quote(prefix) + " must not be empty, end in / or have ? or # in it",
		}})
	}
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
	is := func(value string) *matcherpb.StringMatcher {
		return &matcherpb.StringMatcher{MatchPattern: &matcherpb.StringMatcher_Exact{Exact: value}}
	}
	like := &matcherpb.StringMatcher{MatchPattern: &matcherpb.StringMatcher_SafeRegex{SafeRegex: &matcherpb.RegexMatcher{Regex: "[0-9]+"}}}
	ignoringCase := &matcherpb.StringMatcher{MatchPattern: &matcherpb.StringMatcher_Prefix{Prefix: "aB"}, IgnoreCase: true}
	type queries = []*routepb.QueryParameterMatcher
	for _, tc := range []struct {
		given string
		match queries
		yes   []string
		no    []string
	}{
		{"exact", queries{stringQuery("q", is("1"))}, []string{"/m?q=1", "/m?a=2&q=1", "/m?q=1&q=2", "/m?q=1#f"}, []string{"/m", "/m?", "/m?q", "/m?q=2&q=1", "/m?Q=1", "/m#f?q=1", "/m#?q=1"}},
		{"exact, empty", queries{stringQuery("q", is(""))}, []string{"/m?q", "/m?q="}, []string{"/m?a", "/m"}},
		{"no percent decoding", queries{stringQuery("q", is("a%20b"))}, []string{"/m?q=a%20b"}, []string{"/m?q=a b"}},
		{"a value with =", queries{stringQuery("q", is("a=b"))}, []string{"/m?q=a=b"}, nil},
		{"regex", queries{stringQuery("q", like)}, []string{"/m?q=12"}, []string{"/m?q=12x", "/m?q="}},
		{"prefix ignoring case", queries{stringQuery("q", ignoringCase)}, []string{"/m?q=AbC"}, []string{"/m?q=b"}},
		{"present", queries{queryPresent("q", true)}, []string{"/m?q", "/m?q=1", "/m?&q"}, []string{"/m?a=q", "/m"}},
		{"not present", queries{queryPresent("q", false)}, []string{"/m?a", "/m?"}, []string{"/m?q", "/m"}},
		{"neither", queries{{Name: "q"}}, []string{"/m?q"}, []string{"/m?a", "/m"}},
		{"all have to match", queries{queryPresent("a", true), queryPresent("b", true)}, []string{"/m?b&a"}, []string{"/m?a", "/m?b"}},
	} {
		xdstest.Parallel(t, tc.given, func(t *testing.T) {
			match := xdsmsg.Path("/m")
			match.QueryParameters = tc.match
			vh := decodeRoutes(t, xdsmsg.Route(match, xdsmsg.ToCluster("a")))
			checkMatches(t, vh, byMethod, tc.yes, tc.no)
		})
	}
}

func TestQueryFaults(t *testing.T) {
	t.Parallel()
	match := xdsmsg.Prefix("/")
	match.QueryParameters = []*routepb.QueryParameterMatcher{queryPresent("", true), stringQuery("q", &matcherpb.StringMatcher{})}
	const at = "virtual_hosts[0].routes[0].match.query_parameters"
	checkFaults(t, RouteConfigurationType, routeConfig(xdsmsg.Route(match, xdsmsg.ToCluster("a"))), []fault{
		{at + "[0].name", "must not be empty"},
		{at + "[1].string_match", "match_pattern must be exact, prefix, suffix, contains or safe_regex, is not set"},
	})
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

func inverted(m *routepb.HeaderMatcher) *routepb.HeaderMatcher {
	m.InvertMatch = true
	return m
}

func missingAsEmpty(m *routepb.HeaderMatcher) *routepb.HeaderMatcher {
	m.TreatMissingHeaderAsEmpty = true
	return m
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
	re := &matcherpb.RegexMatcher{Regex: "a+"}
	deprecated := func(m *routepb.HeaderMatcher) *routepb.HeaderMatcher { m.Name = "h"; return m }
	h := func(values ...string) metadata.MD { return metadata.MD{"h": values} }
	for _, tc := range []struct {
		given string
		match *routepb.HeaderMatcher
		yes   []metadata.MD
		no    []metadata.MD
	}{
		{"string exact", stringHeader("h", &matcherpb.StringMatcher{MatchPattern: &matcherpb.StringMatcher_Exact{Exact: "Ab"}}),
			[]metadata.MD{h("Ab")}, []metadata.MD{h("ab"), h("Abc"), h("Ab", "Ab"), nil}},
		{"string exact ignoring case", stringHeader("h", &matcherpb.StringMatcher{MatchPattern: &matcherpb.StringMatcher_Exact{Exact: "Ab"}, IgnoreCase: true}),
			[]metadata.MD{h("Ab"), h("aB")}, []metadata.MD{h("abc")}},
		{"string exact, empty", stringHeader("h", &matcherpb.StringMatcher{MatchPattern: &matcherpb.StringMatcher_Exact{}}),
			[]metadata.MD{h("")}, []metadata.MD{h("a"), h(), nil}},
		{"string prefix", stringHeader("h", &matcherpb.StringMatcher{MatchPattern: &matcherpb.StringMatcher_Prefix{Prefix: "A"}}),
			[]metadata.MD{h("A"), h("Ab"), h("A", "x")}, []metadata.MD{h("a"), h("bA")}},
		{"string suffix ignoring case", stringHeader("h", &matcherpb.StringMatcher{MatchPattern: &matcherpb.StringMatcher_Suffix{Suffix: "Z"}, IgnoreCase: true}),
			[]metadata.MD{h("z"), h("aZ")}, []metadata.MD{h("za")}},
		{"string contains", stringHeader("h", &matcherpb.StringMatcher{MatchPattern: &matcherpb.StringMatcher_Contains{Contains: "m"}}),
			[]metadata.MD{h("ama")}, []metadata.MD{h("aMa"), h("")}},
		{"string regex, whole value", stringHeader("h", &matcherpb.StringMatcher{MatchPattern: &matcherpb.StringMatcher_SafeRegex{SafeRegex: re}}),
			[]metadata.MD{h("aa")}, []metadata.MD{h("ba"), h("ab")}},
		{"string regex has its own case", stringHeader("h", &matcherpb.StringMatcher{MatchPattern: &matcherpb.StringMatcher_SafeRegex{SafeRegex: re}, IgnoreCase: true}),
			[]metadata.MD{h("a")}, []metadata.MD{h("A")}},
		{"deprecated exact", exact("h", "v"), []metadata.MD{h("v")}, []metadata.MD{h("w"), nil}},
		{"several values are joined", exact("h", "a,b"), []metadata.MD{h("a", "b"), h("a,b")}, []metadata.MD{h("a"), h("b", "a")}},
		{"the name in upper case", exact("H", "v"), []metadata.MD{h("v")}, []metadata.MD{h("w")}},
		{"deprecated prefix", deprecated(&routepb.HeaderMatcher{HeaderMatchSpecifier: &routepb.HeaderMatcher_PrefixMatch{PrefixMatch: "p"}}),
			[]metadata.MD{h("pq")}, []metadata.MD{h("qp")}},
		{"deprecated suffix", deprecated(&routepb.HeaderMatcher{HeaderMatchSpecifier: &routepb.HeaderMatcher_SuffixMatch{SuffixMatch: "p"}}),
			[]metadata.MD{h("qp")}, []metadata.MD{h("pq")}},
		{"deprecated contains", deprecated(&routepb.HeaderMatcher{HeaderMatchSpecifier: &routepb.HeaderMatcher_ContainsMatch{ContainsMatch: "p"}}),
			[]metadata.MD{h("opq")}, []metadata.MD{h("q")}},
		{"deprecated regex", deprecated(&routepb.HeaderMatcher{HeaderMatchSpecifier: &routepb.HeaderMatcher_SafeRegexMatch{SafeRegexMatch: re}}),
			[]metadata.MD{h("aa")}, []metadata.MD{h("ab")}},
		{"range", inRange("h", -1, 3), []metadata.MD{h("-1"), h("0"), h("2")}, []metadata.MD{h("3"), h("-2"), h("x"), h("1.0"), h(""), h("1", "2"), nil}},
		{"range inverted", inverted(inRange("h", 0, 3)), []metadata.MD{h("3"), h("x")}, []metadata.MD{h("0"), nil}},
		{"present", present("h", true), []metadata.MD{h("x"), h("")}, []metadata.MD{h(), nil}},
		{"not present", present("h", false), []metadata.MD{nil, h()}, []metadata.MD{h("x")}},
		{"present inverted", inverted(present("h", true)), []metadata.MD{nil}, []metadata.MD{h("x")}},
		{"not present inverted", inverted(present("h", false)), []metadata.MD{h("x")}, []metadata.MD{nil}},
		{"inverted: a missing header does not match", inverted(exact("h", "v")), []metadata.MD{h("w"), h("")}, []metadata.MD{h("v"), nil}},
		{"missing as empty", missingAsEmpty(exact("h", "")), []metadata.MD{nil, h("")}, []metadata.MD{h("v")}},
		{"missing as empty, inverted", missingAsEmpty(inverted(exact("h", "v"))), []metadata.MD{nil, h("w")}, []metadata.MD{h("v")}},
		{"missing as empty does not make a header present", missingAsEmpty(present("h", true)), []metadata.MD{h("")}, []metadata.MD{nil}},
		{"a binary header is never there", present("h-bin", true), nil, []metadata.MD{{"h-bin": {"x"}}}},
		{"a binary header is never there, asked for as such", present("h-bin", false), []metadata.MD{{"h-bin": {"x"}}}, nil},
		{"another content-type than that of the RPC", exact("content-type", "application/grpc+json"), nil, []metadata.MD{nil}},
		{"content-type as gRPC sends it", exact("content-type", "application/grpc"), []metadata.MD{nil, {"content-type": {"x"}}}, nil},
	} {
		xdstest.Parallel(t, tc.given, func(t *testing.T) {
			match := xdsmsg.Prefix("/")
			match.Headers = []*routepb.HeaderMatcher{tc.match}
			vh := decodeRoutes(t, xdsmsg.Route(match, xdsmsg.ToCluster("a")))
			checkMatches(t, vh, func(md metadata.MD) matching.RPC {
				return matching.RPC{Method: "/s/m", Metadata: func() metadata.MD { return md }}
			}, tc.yes, tc.no)
		})
	}
}

func TestHeadersAllHaveToMatch(t *testing.T) {
	t.Parallel()
	match := xdsmsg.Prefix("/")
	match.Headers = []*routepb.HeaderMatcher{exact("a", "1"), exact("b", "2")}
	vh := decodeRoutes(t, xdsmsg.Route(match, xdsmsg.ToCluster("x")))
	for _, tc := range []struct {
		md   metadata.MD
		want bool
	}{
		{metadata.Pairs("a", "1", "b", "2"), true},
		{metadata.Pairs("a", "1", "b", "3"), false},
		{metadata.Pairs("b", "2"), false},
	} {
		xdstest.Equal(t, fmt.Sprintf("%v: matches", tc.md),
			tc.want, vh.Route(matching.RPC{Method: "/", Metadata: func() metadata.MD { return tc.md }}) != nil)
	}
}

func TestHeaderFaults(t *testing.T) {
	t.Parallel()
	const at = "virtual_hosts[0].routes[0].match.headers[0]"
	str := func(m *matcherpb.StringMatcher) *routepb.HeaderMatcher { return stringHeader("h", m) }
	checkEach(t, "faults", func(t *testing.T, header *routepb.HeaderMatcher) []fault {
		match := xdsmsg.Prefix("/")
		match.Headers = []*routepb.HeaderMatcher{header}
		return decodeFaults(t, RouteConfigurationType, routeConfig(xdsmsg.Route(match, xdsmsg.ToCluster("a"))))
	}, rows[*routepb.HeaderMatcher, []fault]{
		{"no name", exact("", "v"), []fault{{at + ".name", "must not be empty"}}},
		{"no kind", &routepb.HeaderMatcher{Name: "h"}, []fault{{at, "header_match_specifier must be set to a kind of match that this client knows"}}},
		{"a range upside down", inRange("h", 2, 1), []fault{{at + ".range_match", "end 1 is below start 2"}}},
		{"an empty prefix", &routepb.HeaderMatcher{Name: "h", HeaderMatchSpecifier: &routepb.HeaderMatcher_PrefixMatch{}}, []fault{{at + ".prefix_match", "must not be empty"}}},
		{"an empty suffix", &routepb.HeaderMatcher{Name: "h", HeaderMatchSpecifier: &routepb.HeaderMatcher_SuffixMatch{}}, []fault{{at + ".suffix_match", "must not be empty"}}},
		{"an empty contains", &routepb.HeaderMatcher{Name: "h", HeaderMatchSpecifier: &routepb.HeaderMatcher_ContainsMatch{}}, []fault{{at + ".contains_match", "must not be empty"}}},
		{
			"an invalid regex",
			&routepb.HeaderMatcher{Name: "h", HeaderMatchSpecifier: &routepb.HeaderMatcher_SafeRegexMatch{SafeRegexMatch: &matcherpb.RegexMatcher{Regex: "("}}},
			[]fault{{at + ".safe_regex_match.regex", "\"(\" is not a valid regular expression (RE2 syntax): error parsing regexp: missing closing ): `(`"}},
		},
		{"a string match of no kind", str(&matcherpb.StringMatcher{}), []fault{{at + ".string_match", "match_pattern must be exact, prefix, suffix, contains or safe_regex, is not set"}}},
		{"a custom string match", str(&matcherpb.StringMatcher{MatchPattern: &matcherpb.StringMatcher_Custom{}}), []fault{{at + ".string_match", "match_pattern must be exact, prefix, suffix, contains or safe_regex, is custom"}}},
		{"an empty string prefix", str(&matcherpb.StringMatcher{MatchPattern: &matcherpb.StringMatcher_Prefix{}}), []fault{{at + ".string_match.prefix", "must not be empty"}}},
		{"an empty string suffix", str(&matcherpb.StringMatcher{MatchPattern: &matcherpb.StringMatcher_Suffix{}}), []fault{{at + ".string_match.suffix", "must not be empty"}}},
		{"an empty string contains", str(&matcherpb.StringMatcher{MatchPattern: &matcherpb.StringMatcher_Contains{}}), []fault{{at + ".string_match.contains", "must not be empty"}}},
		{
			"an empty string regex",
			str(&matcherpb.StringMatcher{MatchPattern: &matcherpb.StringMatcher_SafeRegex{SafeRegex: &matcherpb.RegexMatcher{}}}),
			[]fault{{at + ".string_match.safe_regex.regex", "must not be empty"}},
		},
	})
}

func runtimeFraction(n uint32, of typepb.FractionalPercent_DenominatorType) *corepb.RuntimeFractionalPercent {
	return &corepb.RuntimeFractionalPercent{DefaultValue: &typepb.FractionalPercent{Numerator: n, Denominator: of}, RuntimeKey: "ignored"}
}

func TestRuntimeFraction(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		given    string
		fraction *corepb.RuntimeFractionalPercent
		want     uint32
	}{
		{"nothing", runtimeFraction(0, typepb.FractionalPercent_HUNDRED), 0},
		{"per hundred", runtimeFraction(25, typepb.FractionalPercent_HUNDRED), 250_000},
		{"per ten thousand", runtimeFraction(25, typepb.FractionalPercent_TEN_THOUSAND), 2_500},
		{"per matching.Million", runtimeFraction(25, typepb.FractionalPercent_MILLION), 25},
		{"all", runtimeFraction(100, typepb.FractionalPercent_HUNDRED), matching.Million},
		{"more than all", runtimeFraction(math.MaxUint32, typepb.FractionalPercent_HUNDRED), matching.Million},
	} {
		xdstest.Parallel(t, tc.given, func(t *testing.T) {
			match := xdsmsg.Prefix("/")
			match.RuntimeFraction = tc.fraction
			vh := decodeRoutes(t, xdsmsg.Route(match, xdsmsg.ToCluster("some")), xdsmsg.PrefixRoute("/", "rest"))
			if got := *vh.Routes[0].Match.FractionPerMillion; got != tc.want {
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
	match := xdsmsg.Prefix("/")
	match.RuntimeFraction = runtimeFraction(50, typepb.FractionalPercent_HUNDRED)
	vh := decodeRoutes(t, xdsmsg.Route(match, xdsmsg.ToCluster("some")))
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
	withHeader := xdsmsg.Prefix("/h/")
	withHeader.Headers = []*routepb.HeaderMatcher{exact("a", "1"), exact("b", "1")}
	withFraction := xdsmsg.Prefix("/f/")
	withFraction.Headers = []*routepb.HeaderMatcher{exact("a", "1")}
	withFraction.RuntimeFraction = runtimeFraction(100, typepb.FractionalPercent_HUNDRED)
	contentType := xdsmsg.Prefix("/c/")
	contentType.Headers = []*routepb.HeaderMatcher{exact("content-type", "x"), present("x-bin", true)}
	vh := decodeRoutes(t,
		xdsmsg.Route(withHeader, xdsmsg.ToCluster("a")), xdsmsg.Route(withHeader, xdsmsg.ToCluster("a")),
		xdsmsg.Route(withFraction, xdsmsg.ToCluster("a")), xdsmsg.Route(contentType, xdsmsg.ToCluster("a")), xdsmsg.PrefixRoute("/", "a"))
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
