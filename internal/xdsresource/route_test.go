//lint:file-ignore SA1019 Control planes still send the deprecated fields, and gRPC reads them.

package xdsresource

import (
	"slices"
	"strings"
	"testing"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient"
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

func TestRegexesAreBoundedTogether(t *testing.T) {
	t.Parallel()
	// Given patterns that are fine one by one; when there are too many of
	// them; then that is an error. The same pattern counts once.
	var distinct, same []*routepb.Route
	for i := range 40 {
		const large = "(abcdefghijklmnopqrstuvwxyzabcdefghijklmnop){900}"
		distinct = append(distinct, xdsmsg.Route(regexMatch(strings.Repeat("x", i)+large), xdsmsg.ToCluster("a")))
		same = append(same, xdsmsg.Route(regexMatch(large), xdsmsg.ToCluster("a")))
	}
	mustDecodeRoutes(t, routeConfig(same...))
	for _, last := range []*RouteConfiguration{nil, mustDecodeRoutes(t, routeConfig(distinct[20:]...))} { // which count again
		faults := decodeFaults(t, RouteConfigurationType, routeConfig(distinct...), xdsclient.DecodeOptions{Last: last})
		if len(faults) == 0 || len(faults) == 40 || !strings.Contains(faults[0].Problem, "the regular expressions of this resource are too large together") {
			t.Errorf("faults = %v, want that only the last patterns are too many", faults)
		}
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
				withText(t, xdsmsg.PrefixRoute("/1", "b"), `route{request_mirror_policies{cluster:"m"} request_mirror_policies{cluster_header:"h"}}`),
				xdsmsg.Route(xdsmsg.Prefix("/2"), weightedAction(weighted{"a", 1}, weighted{"zero", 0}, weighted{"b", 2})),
				{Match: xdsmsg.Prefix("/3")},
				xdsmsg.PrefixRoute("/4", "b"),
			}},
			{Domains: []string{"b"}, Routes: []*routepb.Route{xdsmsg.PrefixRoute("/", "c"), xdsmsg.PrefixRoute("/", "a")}},
		},
	})
	xdstest.Equal(t, "VirtualHost.Clusters", []string{"b", "m", "a", "b", "b"}, slices.Collect(rc.VirtualHosts[0].Clusters))
	xdstest.Equal(t, "of another virtual host", []string{"c", "a"}, slices.Collect(rc.VirtualHosts[1].Clusters))
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
