//lint:file-ignore SA1019 Control planes still send the deprecated fields, and gRPC reads them.

package xdsresource

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	mutationpb "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
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
	total := weightedAction(weighted{"a", 1}, weighted{"none", 0}, weighted{"b", math.MaxUint32 - 1})
	total.GetWeightedClusters().TotalWeight = wrapperspb.UInt32(7)
	unweighted := weightedAction(weighted{"a", 3})
	unweighted.GetWeightedClusters().Clusters = append(unweighted.GetWeightedClusters().Clusters, &routepb.WeightedCluster_ClusterWeight{})
	const refused = ", which a gRPC client does not carry out"
	checkEach(t, "Action", func(t *testing.T, route *routepb.Route) Action {
		route.Name = "n"
		route.Match = xdsmsg.Prefix("/")
		vh := decodeRoutes(t, route)
		if len(vh.Routes) != 1 || vh.Routes[0].Name != "n" {
			t.Fatalf("routes = %v, want one called n", vh.Routes)
		}
		return vh.Routes[0].Action
	}, rows[*routepb.Route, Action]{
		{"one cluster", xdsmsg.PrefixRoute("/", "a"), &Forward{Clusters: []WeightedCluster{{Name: "a", Weight: 1}}}},
		{
			"weighted clusters, some of weight 0, and the deprecated total_weight",
			xdsmsg.Route(xdsmsg.Prefix("/"), total),
			&Forward{Clusters: []WeightedCluster{{Name: "a", Weight: 1}, {Name: "b", Weight: math.MaxUint32 - 1}}},
		},
		{
			"a weighted cluster without weight or name",
			xdsmsg.Route(xdsmsg.Prefix("/"), unweighted),
			&Forward{Clusters: []WeightedCluster{{Name: "a", Weight: 3}}},
		},
		{"filter_action", &routepb.Route{Action: &routepb.Route_FilterAction{}}, &Unroutable{"the route's action is filter_action" + refused}},
		{"non_forwarding_action", &routepb.Route{Action: &routepb.Route_NonForwardingAction{}}, &Unroutable{"the route's action is non_forwarding_action" + refused}},
		{"no action", &routepb.Route{}, &Unroutable{"the route has no action"}},
	})
}

func clusterHeader(name string) *routepb.RouteAction {
	return &routepb.RouteAction{ClusterSpecifier: &routepb.RouteAction_ClusterHeader{ClusterHeader: name}}
}

// RouteAction.cluster_header and ClusterWeight.cluster_header: the first value
// of the header is the cluster.
func TestClusterHeader(t *testing.T) {
	t.Parallel()
	weightedByHeader := weightedAction(weighted{"a", 1}, weighted{"", 2})
	weightedByHeader.GetWeightedClusters().Clusters[1].ClusterHeader = "X-Cluster"
	vh := decodeRoutes(t, xdsmsg.Route(xdsmsg.Prefix("/w"), weightedByHeader), xdsmsg.Route(xdsmsg.Prefix("/a"), clusterHeader(":authority")),
		xdsmsg.Route(xdsmsg.Prefix("/b"), clusterHeader("x-bin")), xdsmsg.Route(xdsmsg.Prefix("/"), clusterHeader("X-Cluster")))
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

func mirrorTo(cluster string) *routepb.RouteAction_RequestMirrorPolicy {
	return &routepb.RouteAction_RequestMirrorPolicy{Cluster: cluster}
}

// RequestMirrorPolicy; "the most specific non-empty one becomes the mirror
// policies".
func TestMirrors(t *testing.T) {
	t.Parallel()
	type policies = []*routepb.RouteAction_RequestMirrorPolicy
	half := mirrorTo("half")
	half.RuntimeFraction = runtimeFraction(50, typepb.FractionalPercent_HUNDRED)
	asIs := mirrorTo("as-is")
	asIs.DisableShadowHostSuffixAppend = true
	renamed := mirrorTo("renamed")
	renamed.HostRewriteLiteral = "shadow"
	byHeader := &routepb.RouteAction_RequestMirrorPolicy{ClusterHeader: "X-Mirror"}
	config := routeConfig(
		routeWith(xdsmsg.Prefix("/route"), func(a *routepb.RouteAction) { a.RequestMirrorPolicies = policies{half, asIs, renamed, byHeader} }),
		xdsmsg.PrefixRoute("/host", "a"),
		&routepb.Route{Match: xdsmsg.Prefix("/"), Action: &routepb.Route_NonForwardingAction{}},
	)
	config.RequestMirrorPolicies = policies{mirrorTo("config")}
	config.VirtualHosts[0].RequestMirrorPolicies = policies{mirrorTo("host")}
	config.VirtualHosts = append(config.VirtualHosts, &routepb.VirtualHost{Domains: []string{"x"}, Routes: []*routepb.Route{xdsmsg.PrefixRoute("/", "a")}})
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
	type mutation = mutationpb.HeaderMutation
	add := func(o *corepb.HeaderValueOption) *mutation {
		return &mutation{Action: &mutationpb.HeaderMutation_Append{Append: o}}
	}
	remove := func(name string) *mutation {
		return &mutation{Action: &mutationpb.HeaderMutation_Remove{Remove: name}}
	}
	policy := mirrorTo("m")
	policy.RequestHeadersMutations = []*mutation{
		add(option("a", "1", appendOrAdd)), add(option("a", "2", addIfAbsent)), remove("b"), add(option("b", "3", overwrite)),
		add(option("c", "4", appendOrAdd)), remove("c"), add(option(":path", "/", appendOrAdd)),
		{Action: &mutationpb.HeaderMutation_RemoveOnMatch_{}}, {},
	}
	rc := mustDecodeRoutes(t, routeConfig(routeWith(xdsmsg.Prefix("/"), func(a *routepb.RouteAction) {
		a.RequestMirrorPolicies = []*routepb.RouteAction_RequestMirrorPolicy{policy}
	})))
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
	for given, route := range map[string]*routepb.Route{
		"no cluster_specifier":              xdsmsg.Route(xdsmsg.Prefix("/"), &routepb.RouteAction{}),
		"inline_cluster_specifier_plugin":   xdsmsg.Route(xdsmsg.Prefix("/"), &routepb.RouteAction{ClusterSpecifier: &routepb.RouteAction_InlineClusterSpecifierPlugin{}}),
		"optional cluster_specifier_plugin": xdsmsg.Route(xdsmsg.Prefix("/"), &routepb.RouteAction{ClusterSpecifier: &routepb.RouteAction_ClusterSpecifierPlugin{ClusterSpecifierPlugin: "p"}}),
	} {
		xdstest.Parallel(t, given, func(t *testing.T) {
			config := routeConfig(route, xdsmsg.PrefixRoute("/", "fallback"))
			config.ClusterSpecifierPlugins = []*routepb.ClusterSpecifierPlugin{{
				Extension:  &corepb.TypedExtensionConfig{Name: "p", TypedConfig: &anypb.Any{TypeUrl: unknownURL}},
				IsOptional: true,
			}}
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
	seconds := func(n int64) *durationpb.Duration { return &durationpb.Duration{Seconds: n} }
	is := func(n int64) *time.Duration { d := time.Duration(n) * time.Second; return &d }
	checkEach(t, "MaxStreamDuration", func(t *testing.T, pb *routepb.RouteAction_MaxStreamDuration) *time.Duration {
		route := xdsmsg.PrefixRoute("/", "a")
		route.GetRoute().MaxStreamDuration = pb
		return decodeRoutes(t, route).Routes[0].MaxStreamDuration
	}, rows[*routepb.RouteAction_MaxStreamDuration, *time.Duration]{
		{"unset", nil, nil},
		{"both unset", &routepb.RouteAction_MaxStreamDuration{}, nil},
		{"only an offset", &routepb.RouteAction_MaxStreamDuration{GrpcTimeoutHeaderOffset: seconds(1)}, nil},
		{"max_stream_duration", &routepb.RouteAction_MaxStreamDuration{MaxStreamDuration: seconds(2)}, is(2)},
		{"max_stream_duration 0", &routepb.RouteAction_MaxStreamDuration{MaxStreamDuration: seconds(0)}, is(0)},
		{"grpc_timeout_header_max", &routepb.RouteAction_MaxStreamDuration{GrpcTimeoutHeaderMax: seconds(3)}, is(3)},
		{"both", &routepb.RouteAction_MaxStreamDuration{MaxStreamDuration: seconds(2), GrpcTimeoutHeaderMax: seconds(3)}, is(3)},
		{"both, header 0", &routepb.RouteAction_MaxStreamDuration{MaxStreamDuration: seconds(2), GrpcTimeoutHeaderMax: seconds(0)}, is(0)},
	})
}

func TestRouteConfigurationFaults(t *testing.T) {
	t.Parallel()
	const route0 = "virtual_hosts[0].routes[0]"
	match := func(edit func(*routepb.RouteMatch)) *routepb.RouteConfiguration {
		route := xdsmsg.PrefixRoute("/", "a")
		edit(route.Match)
		return routeConfig(route)
	}
	action := func(a *routepb.RouteAction) *routepb.RouteConfiguration {
		return routeConfig(xdsmsg.Route(xdsmsg.Prefix("/"), a))
	}
	checkAllFaults(t, RouteConfigurationType, []faultTest{
		{"no match", routeConfig(xdsmsg.Route(nil, xdsmsg.ToCluster("a"))), []fault{{route0 + ".match", "must be set"}}},
		{
			"no path_specifier", match(func(m *routepb.RouteMatch) { m.PathSpecifier = nil }),
			[]fault{{route0 + ".match", "path_specifier must be prefix, path, path_separated_prefix or safe_regex, is not set"}},
		}, {
			"an unsupported path_specifier",
			match(func(m *routepb.RouteMatch) { m.PathSpecifier = &routepb.RouteMatch_PathMatchPolicy{} }),
			[]fault{{route0 + ".match", "path_specifier must be prefix, path, path_separated_prefix or safe_regex, is path_match_policy"}},
		}, {
			"an invalid regex", routeConfig(xdsmsg.Route(regexMatch("a)|(b"), xdsmsg.ToCluster("a"))),
			[]fault{{route0 + ".match.safe_regex.regex", "\"a)|(b\" is not a valid regular expression (RE2 syntax): error parsing regexp: unexpected ): `a)|(b`"}},
		}, {
			"an empty regex", routeConfig(xdsmsg.Route(regexMatch(""), xdsmsg.ToCluster("a"))),
			[]fault{{route0 + ".match.safe_regex.regex", "must not be empty"}},
		}, {
			"a regex that explodes", routeConfig(xdsmsg.Route(regexMatch("(abcdefghij){1000}"), xdsmsg.ToCluster("a")), xdsmsg.Route(regexMatch("((abcdefghij){60}){10}x{900}(abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstu){1000}"), xdsmsg.ToCluster("a"))),
			[]fault{{"virtual_hosts[0].routes[1].match.safe_regex.regex", `"((abcdefghij){60}){10}x{900}(abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstu){1000}" is too large a regular expression; repetitions multiply`}},
		}, {
			"a regex of many bytes", routeConfig(xdsmsg.Route(regexMatch(strings.Repeat("a", 8193)), xdsmsg.ToCluster("a"))),
			[]fault{{route0 + ".match.safe_regex.regex", "has 8193 bytes, more than 8192"}},
		}, {
			"a runtime_fraction without default_value",
			match(func(m *routepb.RouteMatch) {
				m.RuntimeFraction = &corepb.RuntimeFractionalPercent{RuntimeKey: "k"}
			}),
			[]fault{{route0 + ".match.runtime_fraction.default_value", "must be set; this client has no runtime to look up runtime_key in"}},
		}, {
			"a runtime_fraction of unknown denominator",
			match(func(m *routepb.RouteMatch) {
				m.RuntimeFraction = &corepb.RuntimeFractionalPercent{DefaultValue: &typepb.FractionalPercent{Denominator: 9}}
			}),
			[]fault{{route0 + ".match.runtime_fraction.default_value.denominator", "is the unknown value 9"}},
		},
		{"a cluster_header without name", action(clusterHeader("")), []fault{{route0 + ".route.cluster_header", "must not be empty"}}},
		{
			"a weighted cluster with a name and a header",
			action(&routepb.RouteAction{ClusterSpecifier: &routepb.RouteAction_WeightedClusters{WeightedClusters: &routepb.WeightedCluster{
				Clusters: []*routepb.WeightedCluster_ClusterWeight{{Name: "a", ClusterHeader: "h", Weight: wrapperspb.UInt32(1)}},
			}}}),
			[]fault{{route0 + ".route.weighted_clusters.clusters[0]", "name and cluster_header are both set"}},
		}, {
			"mirrors that go nowhere, or never",
			action(&routepb.RouteAction{
				ClusterSpecifier: &routepb.RouteAction_Cluster{Cluster: "a"},
				RequestMirrorPolicies: []*routepb.RouteAction_RequestMirrorPolicy{
					{}, {Cluster: "a", ClusterHeader: "b", RuntimeFraction: &corepb.RuntimeFractionalPercent{}},
				},
			}),
			[]fault{
				{route0 + ".route.request_mirror_policies[0].cluster", "must not be empty"},
				{route0 + ".route.request_mirror_policies[1]", "cluster and cluster_header are both set"},
				{route0 + ".route.request_mirror_policies[1].runtime_fraction.default_value", "must be set; this client has no runtime to look up runtime_key in"},
			},
		},
		{"a cluster without name", action(xdsmsg.ToCluster("")), []fault{{route0 + ".route.cluster", "must not be empty"}}},
		{"no weighted cluster", action(weightedAction()), []fault{{route0 + ".route.weighted_clusters.clusters", "must have an entry with a weight above 0"}}},
		{
			"weighted clusters of weight 0", action(weightedAction(weighted{"a", 0}, weighted{"b", 0})),
			[]fault{{route0 + ".route.weighted_clusters.clusters", "must have an entry with a weight above 0"}},
		}, {
			"weighted clusters that overflow, one without name",
			action(weightedAction(weighted{"a", math.MaxUint32}, weighted{"", 1})),
			[]fault{
				{route0 + ".route.weighted_clusters.clusters[1].name", "must not be empty"},
				{route0 + ".route.weighted_clusters.clusters", "the weights add up to 4294967296, more than 4294967295"},
			},
		}, {
			"a plugin that is nowhere",
			action(&routepb.RouteAction{ClusterSpecifier: &routepb.RouteAction_ClusterSpecifierPlugin{ClusterSpecifierPlugin: "p"}}),
			[]fault{{route0 + ".route.cluster_specifier_plugin", `"p" is not in cluster_specifier_plugins of the RouteConfiguration`}},
		}, {
			"a plugin that is not optional",
			&routepb.RouteConfiguration{Name: "r", ClusterSpecifierPlugins: []*routepb.ClusterSpecifierPlugin{{
				Extension: &corepb.TypedExtensionConfig{Name: "p", TypedConfig: &anypb.Any{TypeUrl: unknownURL}},
			}}},
			[]fault{{"cluster_specifier_plugins[0]", `plugin "p": this client has no plugin for type "` + unknownURL + `", and is_optional is not set`}},
		}, {
			"durations",
			action(&routepb.RouteAction{
				ClusterSpecifier: &routepb.RouteAction_Cluster{Cluster: "a"},
				MaxStreamDuration: &routepb.RouteAction_MaxStreamDuration{
					MaxStreamDuration: durationpb.New(-time.Second), GrpcTimeoutHeaderMax: durationpb.New(-time.Minute),
				},
			}),
			[]fault{
				{route0 + ".route.max_stream_duration.max_stream_duration", "is negative: -1s"},
				{route0 + ".route.max_stream_duration.grpc_timeout_header_max", "is negative: -1m0s"},
			},
		}, {
			"faults in several virtual hosts and routes",
			&routepb.RouteConfiguration{VirtualHosts: []*routepb.VirtualHost{
				{Routes: []*routepb.Route{{}, xdsmsg.PrefixRoute("/", "a"), xdsmsg.PrefixRoute("/", "")}},
				{Domains: []string{"a"}},
				{Domains: []string{"A"}},
			}},
			[]fault{
				{"name", "must not be empty"},
				{"virtual_hosts[0].domains", "must have at least one domain"},
				{"virtual_hosts[0].routes[0].match", "must be set"},
				{"virtual_hosts[0].routes[2].route.cluster", "must not be empty"},
				{"virtual_hosts[2].domains[0]", `"A" is already a domain of virtual_hosts[1]`},
			},
		},
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

// RouteAction.weighted_clusters: each cluster gets exactly its share of a cycle, and clusters of
// equal weight alternate. gRFC A28 asks for the shares only.
func TestWeightedClustersAreInterleaved(t *testing.T) {
	t.Parallel()
	vh := decodeRoutes(t,
		xdsmsg.Route(xdsmsg.Prefix("/even"), weightedAction(weighted{"a", 499_884}, weighted{"b", 500_115})),
		xdsmsg.Route(xdsmsg.Prefix("/"), weightedAction(weighted{"a", 70}, weighted{"none", 0}, weighted{"b", 20}, weighted{"c", 10})))
	even := vh.Routes[0].Action.(*Forward)
	last, repeats := even.Next(), 0
	for range 1000 {
		next := even.Next()
		if next == last {
			repeats++
		}
		last = next
	}
	if repeats > 1 {
		t.Errorf("%d of 1000 RPCs went where the one before went, want them to alternate", repeats)
	}
	var rpcs [3]int
	for range 100 {
		rpcs[vh.Routes[1].Action.(*Forward).Next()]++
	}
	xdstest.Equal(t, "RPCs by cluster", [3]int{70, 20, 10}, rpcs)
}
