//lint:file-ignore SA1019 Control planes still send the deprecated fields, and gRPC reads them.

package xdsresource

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
)

func regexMatch(pattern string) *routepb.RouteMatch {
	return &routepb.RouteMatch{PathSpecifier: &routepb.RouteMatch_SafeRegex{SafeRegex: &matcherpb.RegexMatcher{Regex: pattern}}}
}

type weighted struct {
	name   string
	weight uint32
}

func weightedAction(entries ...weighted) *routepb.RouteAction {
	pb := &routepb.WeightedCluster{}
	for _, e := range entries {
		pb.Clusters = append(pb.Clusters, &routepb.WeightedCluster_ClusterWeight{Name: e.name, Weight: wrapperspb.UInt32(e.weight)})
	}
	return &routepb.RouteAction{ClusterSpecifier: &routepb.RouteAction_WeightedClusters{WeightedClusters: pb}}
}

func routeConfig(routes ...*routepb.Route) *routepb.RouteConfiguration {
	return xdsmsg.RouteConfig("routes", "*", routes...)
}

func decodeRoutes(t testing.TB, routes ...*routepb.Route) *VirtualHost {
	t.Helper()
	return mustDecode[RouteConfiguration](t, RouteConfigurationType, routeConfig(routes...)).VirtualHosts[0]
}

func TestRouteConfigurationWithoutVirtualHosts(t *testing.T) {
	t.Parallel()
	rc := mustDecode[RouteConfiguration](t, RouteConfigurationType, &routepb.RouteConfiguration{Name: "r"})
	if rc.Name != "r" || rc.VirtualHost("a") != nil || len(rc.Clusters()) != 0 {
		t.Errorf("got %+v, want an empty RouteConfiguration (gRFC A27: zero or more virtual hosts)", rc)
	}
}

func TestRouteActions(t *testing.T) {
	t.Parallel()
	const refused = ", which a gRPC client does not carry out"
	checkEach(t, "Action", func(t *testing.T, action string) Action {
		vh := decodeRoutes(t, withText(t, &routepb.Route{}, `name:"n" match{prefix:"/"} `+action))
		if len(vh.Routes) != 1 || vh.Routes[0].Name != "n" {
			t.Fatalf("routes = %v, want one called n", vh.Routes)
		}
		return vh.Routes[0].Action
	}, rows[string, Action]{
		{"one cluster", `route{cluster:"a"}`, &Forward{Clusters: []WeightedCluster{{Name: "a", Weight: 1}}}},
		{"weighted clusters, some of weight 0, and the deprecated total_weight", `route{weighted_clusters{
			clusters{name:"a" weight{value:1}} clusters{name:"none" weight{}} clusters{name:"b" weight{value:4294967294}}
			total_weight{value:7}}}`,
			&Forward{Clusters: []WeightedCluster{{Name: "a", Weight: 1}, {Name: "b", Weight: math.MaxUint32 - 1}}}},
		{"a weighted cluster without weight or name",
			`route{weighted_clusters{clusters{name:"a" weight{value:3}} clusters{}}}`,
			&Forward{Clusters: []WeightedCluster{{Name: "a", Weight: 3}}}},
		{"filter_action", `filter_action{}`, &Unroutable{"the route's action is filter_action" + refused}},
		{"non_forwarding_action", `non_forwarding_action{}`, &Unroutable{"the route's action is non_forwarding_action" + refused}},
		{"no action", ``, &Unroutable{"the route has no action"}},
	})
}

// RouteAction.cluster_header and ClusterWeight.cluster_header: the first value
// of the header is the cluster.
func TestClusterHeader(t *testing.T) {
	t.Parallel()
	vh := mustDecode[RouteConfiguration](t, RouteConfigurationType, withText(t, routeConfig(), `virtual_hosts{domains:"w"
		routes{match{prefix:"/w"} route{weighted_clusters{
			clusters{name:"a" weight{value:1}} clusters{cluster_header:"X-Cluster" weight{value:2}}}}}
		routes{match{prefix:"/a"} route{cluster_header:":authority"}}
		routes{match{prefix:"/b"} route{cluster_header:"x-bin"}}
		routes{match{prefix:"/"} route{cluster_header:"X-Cluster"}}}`)).VirtualHosts[1]
	xdstest.Equal(t, "Clusters", []string{"a"}, vh.Clusters())
	md := metadata.Pairs("x-cluster", "first", "x-cluster", "second", "x-bin", "b")
	for _, tc := range []struct {
		method string
		entry  int
		md     metadata.MD
		want   string
	}{
		{"/w", 0, md, "a"},
		{"/w", 1, md, "first"},
		{"/w", 1, nil, ""},
		{"/a", 0, md, "host"},
		{"/b", 0, md, ""},
		{"/", 0, md, "first"},
		{"/", 0, nil, ""},
	} {
		rpc := matching.RPC{Method: tc.method, Authority: "host", Context: metadata.NewOutgoingContext(t.Context(), tc.md)}
		f := vh.Route(rpc).Action.(*Forward)
		xdstest.Equal(t, fmt.Sprintf("%s, entry %d, %v: Cluster", tc.method, tc.entry, tc.md),
			tc.want, f.Clusters[tc.entry].Cluster(&rpc))
	}
}

// RequestMirrorPolicy; "the most specific non-empty one becomes the mirror
// policies".
func TestMirrors(t *testing.T) {
	t.Parallel()
	config := withText(t, &routepb.RouteConfiguration{}, `name:"routes" request_mirror_policies{cluster:"config"}
		virtual_hosts{domains:"*" request_mirror_policies{cluster:"host"}
			routes{match{prefix:"/route"} route{cluster:"a"
				request_mirror_policies{cluster:"half" runtime_fraction{default_value{numerator:50}}}
				request_mirror_policies{cluster:"as-is" disable_shadow_host_suffix_append:true}
				request_mirror_policies{cluster:"renamed" host_rewrite_literal:"shadow"}
				request_mirror_policies{cluster_header:"X-Mirror"}}}
			routes{match{prefix:"/host"} route{cluster:"a"}}
			routes{match{prefix:"/"} non_forwarding_action{}}}
		virtual_hosts{domains:"x" routes{match{prefix:"/"} route{cluster:"a"}}}`)
	hosts := mustDecodeRoutes(t, config).VirtualHosts
	perMillion := uint32(500_000)
	for i, want := range [][]Mirror{
		{
			{Cluster: "half", FractionPerMillion: &perMillion, ShadowSuffix: true},
			{Cluster: "as-is"},
			{Cluster: "renamed", Authority: "shadow"},
			{Header: "x-mirror", ShadowSuffix: true},
		},
		{{Cluster: "host", ShadowSuffix: true}},
		nil,
		{{Cluster: "config", ShadowSuffix: true}},
	} {
		if got := append(hosts[0].Routes, hosts[1].Routes...)[i].Mirrors; !cmp.Equal(got, want) {
			t.Errorf("route %d (-want +got):\n%s", i, cmp.Diff(want, got))
		}
	}
	xdstest.Equal(t, "Clusters", []string{"a", "half", "as-is", "renamed", "host"}, hosts[0].Clusters())

	rpc := matching.RPC{Metadata: func() metadata.MD { return metadata.Pairs("x-mirror", "m", "x-mirror", "n") }}
	mirrors := hosts[0].Routes[0].Mirrors
	if got := [...]string{mirrors[1].Target(&rpc), mirrors[3].Target(&rpc), mirrors[3].Target(&matching.RPC{})}; got != [...]string{"as-is", "m", ""} {
		t.Errorf("targets = %q", got)
	}
	for draw, want := range map[uint64]bool{0: true, 499_999: true, 500_000: false, matching.Million - 1: false} {
		rpc := matching.RPC{Random: func() uint64 { return draw }}
		if mirrors[0].Draw(&rpc) != want {
			t.Errorf("draw %d of half: mirrored = %v, want %v", draw, !want, want)
		}
	}
	if !mirrors[1].Draw(&matching.RPC{Random: func() uint64 { t.Error("drew for nothing"); return 0 }}) {
		t.Error("a mirror without fraction does not get an RPC")
	}
}

// RequestMirrorPolicy.request_headers_mutations: one after the other.
func TestMirrorHeaders(t *testing.T) {
	t.Parallel()
	rc := mustDecodeRoutes(t, acting(t, `request_mirror_policies{cluster:"m"
		request_headers_mutations{append{header{key:"a" value:"1"}}}
		request_headers_mutations{append{header{key:"a" value:"2"} append_action:ADD_IF_ABSENT}}
		request_headers_mutations{remove:"b"}
		request_headers_mutations{append{header{key:"b" value:"3"} append_action:OVERWRITE_IF_EXISTS}}
		request_headers_mutations{append{header{key:"c" value:"4"}}}
		request_headers_mutations{remove:"c"}
		request_headers_mutations{append{header{key:":path" value:"/"}}}
		request_headers_mutations{remove_on_match{}}
		request_headers_mutations{}}`))
	const at = "virtual_hosts[0].routes[0].route.request_mirror_policies[0].request_headers_mutations"
	checkIgnored(t, rc.Ignored,
		note{at + "[6].append.header.key", `header ":path": pseudo headers cannot be edited; routes have rewrites for path and host`},
		note{at + "[7]", "this client does not carry out the mutation remove_on_match"},
		note{at + "[8]", "this client does not carry out the mutation not set"},
	)
	md := metadata.Pairs("b", "x")
	rc.VirtualHosts[0].Routes[0].Mirrors[0].Headers.Apply(md)
	xdstest.Equal(t, "metadata", metadata.MD{"a": {"1"}}, md)
}

// gRFC A28, "Response validation": these routes are ignored.
func TestIgnoredRoutes(t *testing.T) {
	t.Parallel()
	for given, action := range map[string]string{
		"no cluster_specifier":              ``,
		"inline_cluster_specifier_plugin":   `inline_cluster_specifier_plugin{}`,
		"optional cluster_specifier_plugin": `cluster_specifier_plugin:"p"`,
	} {
		xdstest.Parallel(t, given, func(t *testing.T) {
			route := withText(t, &routepb.Route{Match: xdsmsg.Prefix("/")}, `route{`+action+`}`)
			config := withText(t, routeConfig(route, xdsmsg.PrefixRoute("/", "fallback")),
				`cluster_specifier_plugins{extension{name:"p" typed_config{`+unknownMessage+`}} is_optional:true}`)
			rc := mustDecode[RouteConfiguration](t, RouteConfigurationType, config)
			if len(rc.Ignored) != 1 || rc.Ignored[0].Path != "virtual_hosts[0].routes[0].route" {
				t.Errorf("Ignored = %v, want the route", rc.Ignored)
			}
			if routes := config.VirtualHosts[0].Routes; !LeftOut(routes[0]) || LeftOut(routes[1]) {
				t.Errorf("LeftOut is %t, %t for the two routes, want the first", LeftOut(routes[0]), LeftOut(routes[1]))
			}
			vh := rc.VirtualHosts[0]
			xdstest.Equal(t, "Clusters", []string{"fallback"}, vh.Clusters())
			if got := vh.Route(matching.RPC{Method: "/s/m"}); len(vh.Routes) != 1 || got != vh.Routes[0] {
				t.Errorf("Route = %v of %d routes, want the fallback alone", got, len(vh.Routes))
			}
		})
	}
}

// gRFC A31, "Supported Fields".
func TestMaxStreamDuration(t *testing.T) {
	t.Parallel()
	is := func(n int64) *time.Duration { d := time.Duration(n) * time.Second; return &d }
	checkEach(t, "MaxStreamDuration", func(t *testing.T, fields string) *time.Duration {
		return mustDecodeRoutes(t, acting(t, fields)).VirtualHosts[0].Routes[0].MaxStreamDuration
	}, rows[string, *time.Duration]{
		{"unset", ``, nil},
		{"both unset", `max_stream_duration{}`, nil},
		{"only an offset", `max_stream_duration{grpc_timeout_header_offset{seconds:1}}`, nil},
		{"max_stream_duration", `max_stream_duration{max_stream_duration{seconds:2}}`, is(2)},
		{"max_stream_duration 0", `max_stream_duration{max_stream_duration{}}`, is(0)},
		{"grpc_timeout_header_max", `max_stream_duration{grpc_timeout_header_max{seconds:3}}`, is(3)},
		{"both", `max_stream_duration{max_stream_duration{seconds:2} grpc_timeout_header_max{seconds:3}}`, is(3)},
		{"both, header 0", `max_stream_duration{max_stream_duration{seconds:2} grpc_timeout_header_max{}}`, is(0)},
	})
}

func TestRouteConfigurationFaults(t *testing.T) {
	t.Parallel()
	const noRuntime = "runtime_fraction.default_value: must be set; this client has no runtime to look up runtime_key in"
	const large = "((abcdefghij){60}){10}x{900}(abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstu){1000}"
	const noPath = "@: path_specifier must be prefix, path, path_separated_prefix or safe_regex, is "
	matched := func(t testing.TB, match string) *routepb.RouteConfiguration {
		route := xdsmsg.Route(withText(t, &routepb.RouteMatch{}, match), xdsmsg.ToCluster("a"))
		return routeConfig(xdsmsg.Route(regexMatch("(abcdefghij){1000}"), xdsmsg.ToCluster("a")), route)
	}
	checkTextFaults(t, RouteConfigurationType, "virtual_hosts[0].routes[1].match", matched, []textCase{
		{"no path_specifier", ``, noPath + "not set"},
		{"an unsupported path_specifier", `path_match_policy{}`, noPath + "path_match_policy"},
		{"an invalid regex", `safe_regex{regex:"a)|(b"}`, "@.safe_regex.regex: \"a)|(b\" is not a valid regular expression " +
			"(RE2 syntax): error parsing regexp: unexpected ): `a)|(b`"},
		{"an empty regex", `safe_regex{}`, "@.safe_regex.regex: must not be empty"},
		{"a regex that explodes", `safe_regex{regex:"` + large + `"}`,
			`@.safe_regex.regex: "` + large + `" is too large a regular expression; repetitions multiply`},
		{"a regex of many bytes", `safe_regex{regex:"` + strings.Repeat("a", 8193) + `"}`,
			"@.safe_regex.regex: has 8193 bytes, more than 8192"},
		{"a runtime_fraction without default_value", `prefix:"/" runtime_fraction{runtime_key:"k"}`, "@." + noRuntime},
		{"a runtime_fraction of unknown denominator", `prefix:"/" runtime_fraction{default_value{denominator:9}}`,
			"@.runtime_fraction.default_value.denominator: is the unknown value 9"},
	})
	const noWeight = "@.weighted_clusters.clusters: must have an entry with a weight above 0"
	checkTextFaults(t, RouteConfigurationType, firstRoute+".route", acting, []textCase{
		{"a cluster_header without name", `cluster_header:""`, "@.cluster_header: must not be empty"},
		{"a weighted cluster with a name and a header",
			`weighted_clusters{clusters{name:"a" cluster_header:"h" weight{value:1}}}`,
			"@.weighted_clusters.clusters[0]: name and cluster_header are both set"},
		{"mirrors that go nowhere, or never",
			`request_mirror_policies{} request_mirror_policies{cluster:"a" cluster_header:"b" runtime_fraction{}}`,
			"@.request_mirror_policies[0].cluster: must not be empty; " +
				"@.request_mirror_policies[1]: cluster and cluster_header are both set; " +
				"@.request_mirror_policies[1]." + noRuntime},
		{"a cluster without name", `cluster:""`, "@.cluster: must not be empty"},
		{"no weighted cluster", `weighted_clusters{}`, noWeight},
		{"weighted clusters of weight 0",
			`weighted_clusters{clusters{name:"a" weight{}} clusters{name:"b" weight{}}}`, noWeight},
		{"weighted clusters that overflow, one without name",
			`weighted_clusters{clusters{name:"a" weight{value:4294967295}} clusters{weight{value:1}}}`,
			"@.weighted_clusters.clusters[1].name: must not be empty; " +
				"@.weighted_clusters.clusters: the weights add up to 4294967296, more than 4294967295"},
		{"a plugin that is nowhere", `cluster_specifier_plugin:"p"`,
			`@.cluster_specifier_plugin: "p" is not in cluster_specifier_plugins of the RouteConfiguration`},
		{"durations", `max_stream_duration{max_stream_duration{seconds:-1} grpc_timeout_header_max{seconds:-60}}`,
			"@.max_stream_duration.max_stream_duration: is negative: -1s; " +
				"@.max_stream_duration.grpc_timeout_header_max: is negative: -1m0s"},
	})
	whole := func(t testing.TB, fields string) *routepb.RouteConfiguration {
		return withText(t, &routepb.RouteConfiguration{}, fields)
	}
	checkTextFaults(t, RouteConfigurationType, "virtual_hosts", whole, []textCase{
		{"no match", `name:"r" virtual_hosts{domains:"*" routes{route{cluster:"a"}}}`, "@[0].routes[0].match: must be set"},
		{"a plugin that is not optional",
			`name:"r" cluster_specifier_plugins{extension{name:"p" typed_config{` + unknownMessage + `}}}`,
			`cluster_specifier_plugins[0]: plugin "p": this client has no plugin for type "` + unknownURL + `", and is_optional is not set`},
		{"faults in several virtual hosts and routes", `virtual_hosts{
				routes{} routes{match{prefix:"/"} route{cluster:"a"}} routes{match{prefix:"/"} route{cluster:""}}}
			virtual_hosts{domains:"a"} virtual_hosts{domains:"A"}`,
			"name: must not be empty; @[0].domains: must have at least one domain; @[0].routes[0].match: must be set; " +
				`@[0].routes[2].route.cluster: must not be empty; @[2].domains[0]: "A" is already a domain of virtual_hosts[1]`},
	})
}

func TestRegexesAreBoundedTogether(t *testing.T) {
	t.Parallel()
	// Given patterns that are fine one by one; when there are too many of
	// them; then that is a fault. The same pattern counts once.
	var distinct, same []*routepb.Route
	for i := range 40 {
		const large = "(abcdefghijklmnopqrstuvwxyzabcdefghijklmnop){900}"
		distinct = append(distinct, xdsmsg.Route(regexMatch(strings.Repeat("x", i)+large), xdsmsg.ToCluster("a")))
		same = append(same, xdsmsg.Route(regexMatch(large), xdsmsg.ToCluster("a")))
	}
	checkFaults(t, RouteConfigurationType, routeConfig(same...), nil)
	faults := decodeFaults(t, RouteConfigurationType, routeConfig(distinct...))
	if len(faults) == 0 || len(faults) == 40 || faults[0].Problem != "the regular expressions of this resource are too large together" {
		t.Errorf("faults = %v, want that only the last patterns are too many", faults)
	}
}

func TestRoutesToOneClusterShareTheirAction(t *testing.T) {
	t.Parallel()
	vh := decodeRoutes(t, xdsmsg.PrefixRoute("/a", "x"), xdsmsg.PrefixRoute("/b", "y"), xdsmsg.PrefixRoute("/c", "x"))
	if vh.Routes[0].Action != vh.Routes[2].Action || vh.Routes[0].Action == vh.Routes[1].Action {
		t.Error("routes to the same cluster do not share one Forward, or routes to different ones do")
	}
}

func TestClusters(t *testing.T) {
	t.Parallel()
	rc := mustDecode[RouteConfiguration](t, RouteConfigurationType, &routepb.RouteConfiguration{
		Name: "r",
		VirtualHosts: []*routepb.VirtualHost{
			{Domains: []string{"a"}, Routes: []*routepb.Route{
				xdsmsg.PrefixRoute("/1", "b"),
				xdsmsg.Route(xdsmsg.Prefix("/2"), weightedAction(weighted{"a", 1}, weighted{"zero", 0}, weighted{"b", 2})),
				{Match: xdsmsg.Prefix("/3")},
				xdsmsg.PrefixRoute("/4", "b"),
			}},
			{Domains: []string{"b"}, Routes: []*routepb.Route{xdsmsg.PrefixRoute("/", "c"), xdsmsg.PrefixRoute("/", "a")}},
		},
	})
	xdstest.Equal(t, "VirtualHost.Clusters", []string{"b", "a"}, rc.VirtualHosts[0].Clusters())
	xdstest.Equal(t, "RouteConfiguration.Clusters", []string{"b", "a", "c"}, rc.Clusters())
}

// RouteAction.weighted_clusters: RPCs are drawn by weight (gRFC A28).
func TestWeightedClustersAreDrawn(t *testing.T) {
	t.Parallel()
	vh := decodeRoutes(t,
		xdsmsg.Route(xdsmsg.Prefix("/"), weightedAction(weighted{"a", 70}, weighted{"none", 0}, weighted{"b", 20}, weighted{"c", 10})))
	forward, rpcs := vh.Routes[0].Action.(*Forward), map[string]int{}
	for range 10_000 {
		rpcs[forward.Clusters[forward.Draw()].Name]++
	}
	xdstest.Shares(t, "RPCs by cluster", map[string]float64{"a": 70, "b": 20, "c": 10}, rpcs)
}
