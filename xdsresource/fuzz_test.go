package xdsresource

import (
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	roundrobinpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/xdsclient"
)

// richRoutes uses every kind of match and action that is decoded.
func richRoutes() *routepb.RouteConfiguration {
	withAll := caseInsensitive(prefixMatch("/a.B/"))
	withAll.Headers = []*routepb.HeaderMatcher{inverted(exact("a", "b")), inRange("n", 1, 9), present("p", true)}
	withAll.RuntimeFraction = fraction(50, typepb.FractionalPercent_HUNDRED)
	config := routeConfig(
		routeTo(withAll, weightedAction(weighted{"a", 1}, weighted{"b", 2})),
		routeTo(regexMatch("/c/(d|e)+"), clusterAction("c")),
		routeTo(pathMatch("/a.B/m"), clusterAction("d")),
		&routepb.Route{Match: prefixMatch("/"), Action: &routepb.Route_Redirect{}},
	)
	config.VirtualHosts = append(config.VirtualHosts,
		&routepb.VirtualHost{Domains: []string{"*.b", "a.*", "c"}, Routes: []*routepb.Route{toCluster("/", "e")}})
	return config
}

// fuzz feeds bytes to a decoder and checks what holds for all of them.
func fuzz[T any](f *testing.F, rt *xdsclient.ResourceType, seeds []proto.Message, use func(*testing.T, *T)) {
	for _, seed := range seeds {
		f.Add(mustAny(f, seed).Value)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		name, value, err := rt.Decode(&anypb.Any{TypeUrl: rt.TypeURL, Value: b}, xdsclient.DecodeOptions{})
		if err != nil {
			if value != nil || err.Error() == "" {
				t.Errorf("Decode = %v, %q: want no value and an error that says something", value, err)
			}
			return
		}
		if name == "" {
			t.Error("Decode accepted a resource without a name")
		}
		use(t, value.(*T))
	})
}

func checkRoutes(t *testing.T, rc *RouteConfiguration) {
	md := func() metadata.MD { return metadata.Pairs("a", "b", "n", "3") }
	for _, authority := range []string{"", "c", "x.b", "a.x", "A.B"} {
		vh := rc.VirtualHost(authority)
		if vh == nil {
			continue
		}
		for _, method := range []string{"", "/", "/a.B/m", "/c/de", "\xff"} {
			random := func() uint64 { return 7 }
			got := vh.Route(RPC{Method: method, Metadata: md, Random: random})
			rpc := RPC{Method: method, Metadata: md, Random: random}
			if want := linearly(vh, &rpc); got != want {
				t.Errorf("%q: got %v, want %v", method, got, want)
			}
		}
	}
	for _, vh := range rc.VirtualHosts {
		for _, route := range vh.Routes {
			if f, ok := route.Action.(*Forward); ok && (len(f.Clusters) == 0 || f.TotalWeight == 0) || route.Action == nil {
				t.Errorf("route with the action %v", route.Action)
			}
		}
	}
}

func FuzzListener(f *testing.F) {
	byRDS, inline := validManager(f), validManager(f)
	byRDS.HttpFilters = append([]*hcmpb.HttpFilter{plain("p")}, byRDS.HttpFilters...)
	inline.RouteSpecifier = &hcmpb.HttpConnectionManager_RouteConfig{RouteConfig: richRoutes()}
	seeds := []proto.Message{apiListener(f, byRDS), apiListener(f, inline)}
	fuzz(f, ListenerType, seeds, func(t *testing.T, l *Listener) {
		if (l.RouteConfigName == "") == (l.RouteConfig == nil) {
			t.Errorf("RouteConfigName, RouteConfig = %q, %v, want one of them", l.RouteConfigName, l.RouteConfig)
		}
		if len(l.Filters) == 0 || !l.Filters[len(l.Filters)-1].Filter.IsTerminal() {
			t.Errorf("Filters = %v, want the last to be terminal", l.Filters)
		}
		if l.RouteConfig != nil {
			checkRoutes(t, l.RouteConfig)
		}
	})
}

func FuzzRouteConfiguration(f *testing.F) {
	fuzz(f, RouteConfigurationType, []proto.Message{richRoutes()}, checkRoutes)
}

func FuzzCluster(f *testing.F) {
	rr := mustAny(f, &roundrobinpb.RoundRobin{})
	nested := edsCluster(func(c *clusterpb.Cluster) { c.LoadBalancingPolicy = policies(wrrLocality(f, policies(rr)), rr) })
	fuzz(f, ClusterType, []proto.Message{edsCluster(), nested}, func(t *testing.T, c *Cluster) {
		if c.EDSServiceName == "" || c.LBPolicy == "" {
			t.Errorf("Cluster = %+v, want a service name and a policy", c)
		}
	})
}

func FuzzEndpoints(f *testing.F) {
	seed := assignment(locality("a", 0, 1, host("1"), withWeight(host("::1"), 3)), locality("b", 1, 2, host("2")), locality("c", 2, 1))
	fuzz(f, EndpointsType, []proto.Message{seed}, func(t *testing.T, e *Endpoints) {
		used := map[uint32]uint64{}
		for _, l := range e.Localities {
			if l.Weight == 0 || len(l.Endpoints) == 0 {
				t.Errorf("locality %+v without weight or endpoints", l)
			}
			used[l.Priority] += uint64(l.Weight)
		}
		for priority := range uint32(len(used)) {
			if sum := used[priority]; sum == 0 || sum>>32 != 0 {
				t.Errorf("priority %d has a weight of %d", priority, sum)
			}
		}
	})
}

// linearly is Route without index.
func linearly(vh *VirtualHost, rpc *RPC) *Route {
	path, _ := splitQuery(rpc.Method)
	h := headers{rpc: rpc}
	for _, route := range vh.Routes {
		if route.Match.matchesPath(path) && route.Match.matchesRest(rpc, &h) {
			return route
		}
	}
	return nil
}
