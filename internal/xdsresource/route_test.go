//lint:file-ignore SA1019 Control planes still send the deprecated fields, and gRPC reads them.

package xdsresource

import (
	"fmt"
	"strings"
	"testing"

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

// gRFC A28, "Response validation": routes without a cluster_specifier that gRPC knows are left out.
func TestLeftOut(t *testing.T) {
	t.Parallel()
	for action, want := range map[string]bool{
		``: true, `inline_cluster_specifier_plugin{}`: true, `cluster_specifier_plugin:"p"`: true, `cluster:"a"`: false,
	} {
		if got := LeftOut(withText(t, &routepb.Route{}, `match{prefix:"/"} route{`+action+`}`)); got != want {
			t.Errorf("a route with %q: left out: %v, want %v", action, got, want)
		}
	}
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
