//lint:file-ignore SA1019 Control planes still send the deprecated fields, and gRPC reads them.

package xdsresource

import (
	"fmt"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// RouteAction.prefix_rewrite and regex_rewrite, with the examples of their
// documentation.
func TestRewritePath(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		given, match, action, method, want string
		broken                             bool
	}{
		{"none", `prefix:"/a"`, ``, "/a/b", "/a/b", false},
		{"a prefix", `prefix:"/prefix/"`, `prefix_rewrite:"/"`, "/prefix/etc", "/etc", false},
		{"a prefix that is all", `prefix:"/prefix"`, `prefix_rewrite:"/"`, "/prefix", "/", false},
		{"a prefix in another case", `prefix:"/A.B/" case_sensitive{}`, `prefix_rewrite:"/c.D/"`, "/a.b/M", "/c.D/M", false},
		{"a separated prefix", `path_separated_prefix:"/a.B"`, `prefix_rewrite:"/c.D"`, "/a.B/M", "/c.D/M", false},
		{"a path", `path:"/a.B/M"`, `prefix_rewrite:"/c.D/N"`, "/a.B/M", "/c.D/N", false},
		{"a regex match is replaced as a whole", `safe_regex{regex:"/a.*"}`, `prefix_rewrite:"/c.D/N"`, "/a.B/M", "/c.D/N", false},
		{"a query stays", `path:"/a"`, `prefix_rewrite:"/b"`, "/a?q=/a#f", "/b?q=/a#f", false},
		{"groups", `prefix:"/"`,
			`regex_rewrite{pattern{regex:"^/service/([^/]+)(/.*)$"} substitution:"\\2/instance/\\1"}`, "/service/foo/v1/api", "/v1/api/instance/foo", false},
		{"the whole path", `prefix:"/"`, `regex_rewrite{pattern{regex:".+"} substitution:"/t/n"}`, "/s/m", "/t/n", false},
		{"all matches", `prefix:"/"`,
			`regex_rewrite{pattern{regex:"one"} substitution:"two"}`, "/xxx/one/yyy/one/zzz", "/xxx/two/yyy/two/zzz", false},
		{"only the first", `prefix:"/"`,
			`regex_rewrite{pattern{regex:"^(.*?)one(.*)$"} substitution:"\\1two\\2"}`, "/xxx/one/yyy/one/zzz", "/xxx/two/yyy/one/zzz", false},
		{"a regex in any case", `prefix:"/"`,
			`regex_rewrite{pattern{regex:"(?i)/xxx/"} substitution:"/yyy/"}`, "/aaa/XxX/bbb", "/aaa/yyy/bbb", false},
		{"group 0, a backslash, dollars", `prefix:"/"`,
			`regex_rewrite{pattern{regex:"b"} substitution:"[\\0\\\\$1${2}]"}`, "/abc", `/a[b\$1${2}]c`, false},
		{"the query is not for the regex", `prefix:"/"`, `regex_rewrite{pattern{regex:"a"} substitution:"b"}`, "/a?a", "/b?a", false},
		{"no match of the regex", `prefix:"/"`, `regex_rewrite{pattern{regex:"x"} substitution:"y"}`, "/a", "/a", false},
		{"the result has no slash", `prefix:"/a"`, `prefix_rewrite:"b"`, "/a/b", "", true},
		{"the result is empty", `prefix:"/a"`, `regex_rewrite{pattern{regex:".*"} substitution:""}`, "/a/b", "", true},
		{"the result has a blank", `prefix:"/a"`, `prefix_rewrite:"/b c"`, "/a", "", true},
	} {
		xdstest.Parallel(t, tc.given, func(t *testing.T) {
			route := decodeRoutes(t, withText(t, matchedBy(t, tc.match), `route{`+tc.action+`}`)).Route(matching.RPC{Method: tc.method})
			got, ok := route.RewritePath(tc.method)
			if ok == tc.broken || ok && got != tc.want {
				t.Errorf("RewritePath(%q) = %q, %v, want %q, %v", tc.method, got, ok, tc.want, !tc.broken)
			}
		})
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
		given, action, cluster, want string
		auto                         bool
		field                        string // what is left out if the server is not trusted
	}{
		{given: "none"},
		{given: "a literal", action: `host_rewrite_literal:"new:80"`, want: "new:80", field: "host_rewrite_literal"},
		{given: "an empty literal", action: `host_rewrite_literal:""`},
		{given: "a header, of which the first value counts", action: `host_rewrite_header:"H"`, want: "first", field: "host_rewrite_header"},
		{given: "a missing header", action: `host_rewrite_header:"none"`, field: "host_rewrite_header"},
		{given: "an empty header", action: `host_rewrite_header:"empty"`, field: "host_rewrite_header"},
		{given: "a binary header", action: `host_rewrite_header:"h-bin"`, field: "host_rewrite_header"},
		{given: "a header that is no authority", action: `host_rewrite_header:"bad"`, field: "host_rewrite_header"},
		{given: "auto", action: `auto_host_rewrite{value:true}`, auto: true, field: "auto_host_rewrite"},
		{given: "auto: false", action: `auto_host_rewrite{}`},
		{given: "that of the cluster", cluster: "c", want: "c"},
		{given: "that of the cluster if the header is missing", action: `host_rewrite_header:"none"`, cluster: "c", want: "c",
			field: "host_rewrite_header"},
		{given: "that of the cluster is carried out before that of the route", action: `host_rewrite_literal:"new"`, cluster: "c",
			want: "new", field: "host_rewrite_literal"},
		{given: "that of the cluster beside auto", action: `auto_host_rewrite{value:true}`, cluster: "c", want: "c", auto: true,
			field: "auto_host_rewrite"},
	} {
		xdstest.Parallel(t, tc.given, func(t *testing.T) {
			config := acting(t, tc.action+` weighted_clusters{clusters{name:"a" weight{value:1} host_rewrite_literal:"`+tc.cluster+`"}}`)
			check := func(rc *RouteConfiguration, want string, auto bool) {
				route := rc.VirtualHosts[0].Routes[0]
				xdstest.Equal(t, "RewriteAuthority",
					want, route.RewriteAuthority(&rpc, &route.Action.(*Forward).Clusters[0]))
				xdstest.Equal(t, "AutoHost", auto, route.Rewrite != nil && route.Rewrite.AutoHost)
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

const (
	appendOrAdd    = corepb.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD
	addIfAbsent    = corepb.HeaderValueOption_ADD_IF_ABSENT
	overwriteOrAdd = corepb.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD
	overwrite      = corepb.HeaderValueOption_OVERWRITE_IF_EXISTS
)

func option(key, value string, action corepb.HeaderValueOption_HeaderAppendAction) *corepb.HeaderValueOption {
	return &corepb.HeaderValueOption{Header: &corepb.HeaderValue{Key: key, Value: value}, AppendAction: action}
}

func keepingEmpty(o *corepb.HeaderValueOption) *corepb.HeaderValueOption {
	o.KeepEmptyValue = true
	return o
}

type options = []*corepb.HeaderValueOption

// HeaderValueOption.append_action, and what Envoy makes of several edits of
// one header.
func TestHeaderEdits(t *testing.T) {
	t.Parallel()
	raw := &corepb.HeaderValueOption{Header: &corepb.HeaderValue{Key: "h", RawValue: []byte("raw")}}
	appended := option("h", "v", appendOrAdd)
	appended.Append = wrapperspb.Bool(true)
	replaced := option("h", "v", appendOrAdd)
	replaced.Append = wrapperspb.Bool(false)
	type values = []string
	for _, tc := range []struct {
		given  string
		remove []string
		add    options
		// ifAbsent and ifPresent are h after the edits if it was not there, or
		// was "x", "y".
		ifAbsent, ifPresent values
	}{
		{"nothing", nil, nil, nil, values{"x", "y"}},
		{"append", nil, options{option("h", "v", appendOrAdd)}, values{"v"}, values{"x", "y", "v"}},
		{"add if absent", nil, options{option("h", "v", addIfAbsent)}, values{"v"}, values{"x", "y"}},
		{"overwrite or add", nil, options{option("h", "v", overwriteOrAdd)}, values{"v"}, values{"v"}},
		{"overwrite", nil, options{option("h", "v", overwrite)}, nil, values{"v"}},
		{"remove", []string{"h"}, nil, nil, nil},
		{"names in upper case", []string{"H"}, options{option("H", "v", appendOrAdd)}, values{"v"}, values{"v"}},
		{"deprecated append: true", nil, options{appended}, values{"v"}, values{"x", "y", "v"}},
		{"deprecated append: false", nil, options{replaced}, values{"v"}, values{"v"}},
		{"raw_value", nil, options{raw}, values{"raw"}, values{"x", "y", "raw"}},
		{"an empty value is dropped", nil, options{option("h", "", overwriteOrAdd)}, nil, values{"x", "y"}},
		{"an empty value is kept", nil, options{keepingEmpty(option("h", "", overwriteOrAdd))}, values{""}, values{""}},
		{"a percent sign", nil, options{option("h", "100%% a%%b", overwriteOrAdd)}, values{"100% a%b"}, values{"100% a%b"}},
		{"removed first", []string{"h"}, options{option("h", "v", appendOrAdd)}, values{"v"}, values{"v"}},
		{"removed, then not there to overwrite", []string{"h"}, options{option("h", "v", overwrite)}, nil, nil},
		{"removed, then absent", []string{"h"}, options{option("h", "v", addIfAbsent)}, values{"v"}, values{"v"}},
		{"appended twice", nil, options{option("h", "1", appendOrAdd), option("h", "2", appendOrAdd)}, values{"1", "2"}, values{"x", "y", "1", "2"}},
		{"overwritten twice", nil, options{option("h", "1", overwriteOrAdd), option("h", "2", overwriteOrAdd)}, values{"2"}, values{"2"}},
		{"overwritten before it is appended", nil, options{option("h", "1", appendOrAdd), option("h", "2", overwriteOrAdd)}, values{"2", "1"}, values{"2", "1"}},
		{"absent is asked once", nil, options{option("h", "1", appendOrAdd), option("h", "2", addIfAbsent)}, values{"1", "2"}, values{"x", "y", "1"}},
		{"present is asked once", nil, options{option("h", "1", overwriteOrAdd), option("h", "2", overwrite)}, values{"1"}, values{"2"}},
	} {
		xdstest.Parallel(t, tc.given, func(t *testing.T) {
			route := xdsmsg.PrefixRoute("/", "a")
			route.RequestHeadersToAdd, route.RequestHeadersToRemove = tc.add, tc.remove
			route.ResponseHeadersToAdd, route.ResponseHeadersToRemove = tc.add, tc.remove
			rc := mustDecode[RouteConfiguration](t, RouteConfigurationType, routeConfig(route))
			checkIgnored(t, rc.Ignored)
			m := rc.VirtualHosts[0].Routes[0].HeadersFor(nil)
			if m == nil {
				m = &HeaderMutations{}
			}
			for _, edits := range []HeaderEdits{m.Request, m.Response} {
				for _, there := range []bool{false, true} {
					md, want := metadata.MD{"other": {"o"}}, metadata.MD{"other": {"o"}}
					after := tc.ifAbsent
					if there {
						md["h"], after = []string{"x", "y"}, tc.ifPresent
					}
					if after != nil {
						want["h"] = after
					}
					edits.Apply(md)
					xdstest.Equal(t, fmt.Sprintf("header there: %v; metadata", there), want, md)
				}
			}
		})
	}
}

func TestHeaderEditsDoNotShareValues(t *testing.T) {
	t.Parallel()
	route := xdsmsg.PrefixRoute("/", "a")
	route.RequestHeadersToAdd = options{option("h", "v", appendOrAdd)}
	edits := decodeRoutes(t, route).Routes[0].Headers.Request
	first, second := metadata.MD{}, metadata.MD{}
	edits.Apply(first)
	first["h"][0] = "changed"
	edits.Apply(second)
	if second["h"][0] != "v" {
		t.Error("whoever got a value has changed it for all")
	}
}

// Envoy, "Custom request/response headers": weighted cluster, route, virtual
// host, RouteConfiguration; the other way round if
// most_specific_header_mutations_wins is set.
func TestOrderOfHeaderLevels(t *testing.T) {
	t.Parallel()
	edit := func(value string) options { return options{option("h", value, appendOrAdd)} }
	for wins, want := range map[bool][2][]string{
		false: {{"weight", "route", "host", "config"}, {"route", "host", "config"}},
		true:  {{"config", "host", "route", "weight"}, {"config", "host", "route"}},
	} {
		action := weightedAction(weighted{"a", 1}, weighted{"b", 1})
		weights := action.GetWeightedClusters().GetClusters()
		weights[0].RequestHeadersToAdd, weights[0].ResponseHeadersToAdd = edit("weight"), edit("weight")
		route := xdsmsg.Route(xdsmsg.Prefix("/"), action)
		route.RequestHeadersToAdd, route.ResponseHeadersToAdd = edit("route"), edit("route")
		config := routeConfig(route, xdsmsg.PrefixRoute("/", "plain"))
		config.MostSpecificHeaderMutationsWins = wins
		config.RequestHeadersToAdd, config.ResponseHeadersToAdd = edit("config"), edit("config")
		host := config.VirtualHosts[0]
		host.RequestHeadersToAdd, host.ResponseHeadersToAdd = edit("host"), edit("host")

		routes := mustDecodeRoutes(t, config).VirtualHosts[0].Routes
		clusters := routes[0].Action.(*Forward).Clusters
		for i := range clusters {
			m := routes[0].HeadersFor(&clusters[i])
			for _, edits := range []HeaderEdits{m.Request, m.Response} {
				md := metadata.MD{}
				edits.Apply(md)
				xdstest.Equal(t, fmt.Sprintf("most specific wins: %v, cluster %s", wins, clusters[i].Name), want[i], md["h"])
			}
		}
	}
}

func TestLevelsWithoutEditsShareThoseAbove(t *testing.T) {
	t.Parallel()
	config := routeConfig(xdsmsg.PrefixRoute("/a", "a"), xdsmsg.PrefixRoute("/b", "b"))
	config.ResponseHeadersToRemove = []string{"h"}
	config.VirtualHosts = append(config.VirtualHosts, &routepb.VirtualHost{Domains: []string{"x"}, Routes: []*routepb.Route{xdsmsg.PrefixRoute("/", "c")}})
	hosts := mustDecodeRoutes(t, config).VirtualHosts
	if m := hosts[0].Routes[0].Headers; m == nil || m != hosts[0].Routes[1].Headers || m != hosts[1].Routes[0].Headers {
		t.Error("routes without edits of their own do not share one value")
	}
	if m := decodeRoutes(t, xdsmsg.PrefixRoute("/", "a")).Routes[0].HeadersFor(nil); m != nil {
		t.Errorf("HeadersFor = %v without any edits, want nil", m)
	}
}

func TestIgnoredIsBounded(t *testing.T) {
	t.Parallel()
	route := xdsmsg.PrefixRoute("/", "a")
	for i := range 200 {
		route.RequestHeadersToAdd = append(route.RequestHeadersToAdd, option(fmt.Sprint(":", i), "v", appendOrAdd))
	}
	if rc := mustDecodeRoutes(t, routeConfig(route)); len(rc.Ignored) != 100 {
		t.Errorf("%d entries, want 100", len(rc.Ignored))
	}
}
