package xdsresource

import (
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/xdsclient"
)

// richRoutes uses every kind of match and action that is decoded.
func richRoutes(t testing.TB) *routepb.RouteConfiguration {
	config := withText(t, routeConfig(), `virtual_hosts{domains:"*.b" domains:"a.*" domains:"c"
		routes{match{prefix:"/"} route{cluster:"e"}}
		routes{match{prefix:"/" headers{name:"tenant" exact_match:"x"}} route{cluster:"c"}}}`)
	config.VirtualHosts[0] = withText(t, config.VirtualHosts[0], `
		routes{
			match{prefix:"/a.B/" case_sensitive{} runtime_fraction{default_value{numerator:50} runtime_key:"ignored"}
				headers{name:"a" exact_match:"b" invert_match:true}
				headers{name:"n" range_match{start:1 end:9}} headers{name:"p" present_match:true}}
			route{weighted_clusters{clusters{name:"a" weight{value:1}} clusters{name:"b" weight{value:2}}}}}
		routes{match{path_separated_prefix:"/q" query_parameters{name:"x" present_match:true}} route{cluster_header:"n"}}
		routes{match{safe_regex{regex:"/c/(d|e)+"}}
			route{cluster:"a" regex_rewrite{pattern{regex:"/(.)"} substitution:"/\\1\\\\"} host_rewrite_header:"a"
				hash_policy{header{header_name:"a"}} hash_policy{filter_state{key:"io.grpc.channel_id"} terminal:true}
				retry_policy{retry_on:"internal" retry_back_off{base_interval{nanos:1} max_interval{nanos:2}}}
				max_stream_duration{max_stream_duration{nanos:1}}}}
		routes{match{path:"/a.B/m"}
			route{cluster:"a" prefix_rewrite:"/x" request_mirror_policies{cluster:"m"
				runtime_fraction{default_value{numerator:1 denominator:MILLION} runtime_key:"ignored"}}}
			request_headers_to_add{header{key:"a" value:"b"} append_action:ADD_IF_ABSENT}
			request_headers_to_add{header{key:"a" value:"%%"} append_action:OVERWRITE_IF_EXISTS}
			typed_per_filter_config{key:"f" value{type_url:"`+overrideURL+`" value:"x"}}}
		routes{match{prefix:"/"} direct_response{status:404 body{inline_string:"not found"}}}
		routes{match{prefix:"/"} redirect{port_redirect:80 path_redirect:"/x"}}`)
	config.ResponseHeadersToRemove = []string{"a", "b"}
	config.MostSpecificHeaderMutationsWins = true
	return config
}

// fuzz feeds bytes to a decoder and checks what holds for all of them.
func fuzz[T any](f *testing.F, rt *xdsclient.ResourceType, seeds []proto.Message, use func(*testing.T, *T)) {
	for _, seed := range seeds {
		f.Add(xdsmsg.Any(seed).Value)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		resource := &anypb.Any{TypeUrl: rt.TypeURL, Value: b}
		value, err := rt.Decode(resource, trusted)
		if err != nil {
			if value != nil || err.Error() == "" {
				t.Errorf("Decode = %v, %q: want no value and an error that says something", value, err)
			}
			return
		}
		if _, err := IgnoredFields(resource); err != nil {
			t.Errorf("IgnoredFields = %v of a resource that can be read", err)
		}
		if len(rt.NameOf(b)) == 0 {
			t.Error("Decode accepted a resource without a name")
		}
		use(t, value.(*T))
	})
}

func checkRoutes(t *testing.T, rc *RouteConfiguration) {
	for _, vh := range rc.VirtualHosts {
		for _, route := range vh.Routes {
			if route.Action == nil {
				t.Errorf("route %+v without an action", route)
			}
			if fraction := route.Match.Conditions().FractionPerMillion; fraction != nil {
				*fraction = min(*fraction, 1) * matching.Million // so that nothing is drawn
			}
		}
	}
	ctx := metadata.NewOutgoingContext(t.Context(), metadata.Pairs("a", "b", "n", "3"))
	for _, authority := range []string{"", "c", "x.b", "a.x", "A.B"} {
		vh := rc.VirtualHost(authority)
		if vh == nil {
			continue
		}
		for _, method := range []string{"", "/", "/a.B/m", "/c/de", "/q?x", "\xff"} {
			rpc := matching.RPC{Method: method, Authority: authority, Context: ctx}
			want := linearly(vh, &rpc)
			for range 2 {
				if got := vh.Route(rpc); got != want {
					t.Errorf("%q: got %v, want %v", method, got, want)
				}
			}
			if want != nil {
				useRoute(t, want, &rpc)
			}
		}
	}
}

// useRoute does everything that is done with the route of an RPC.
func useRoute(t *testing.T, route *Route, rpc *matching.RPC) {
	route.Hash(rpc, 1)
	for i := range route.Mirrors {
		route.Mirrors[i].Headers.Apply(rpc.Metadata())
		if m := &route.Mirrors[i]; (m.Cluster == "") == (m.Header == "") {
			t.Errorf("mirror %+v has not exactly one of cluster and header", m)
		}
		route.Mirrors[i].Target(rpc)
	}
	if path, ok := route.RewritePath(rpc.Method); ok && path != rpc.Method && path[0] != '/' {
		t.Errorf("RewritePath(%q) = %q", rpc.Method, path)
	}
	if r := route.Retry; r != nil && (r.MaxAttempts < 1 || r.MaxAttempts > 5 || r.MaxAttempts == 1 && !r.LimitsTries() || r.BaseBackoff <= 0 || r.MaxBackoff < r.BaseBackoff) {
		t.Errorf("Retry = %+v", r)
	}
	switch action := route.Action.(type) {
	case *Forward:
		if next := action.Draw(); next < 0 || next >= len(action.Clusters) {
			t.Errorf("Draw() = %d of %+v", next, action)
		}
		for i := range action.Clusters {
			action.Clusters[i].Cluster(rpc)
			route.RewriteAuthority(rpc, &action.Clusters[i])
			applyHeaders(route.HeadersFor(&action.Clusters[i]), rpc)
		}
	case *Redirect:
		action.Location(&route.Match, rpc)
		applyHeaders(route.HeadersFor(nil), rpc)
	case *DirectResponse:
		if action.Code == codes.OK {
			t.Errorf("DirectResponse = %+v, want an error", action)
		}
	}
}

func applyHeaders(m *HeaderMutations, rpc *matching.RPC) {
	if m != nil {
		m.Request.Apply(rpc.Metadata())
		m.Response.Apply(metadata.MD{})
	}
}

func FuzzListener(f *testing.F) {
	byRDS, inline := validManager(), validManager()
	byRDS.HttpFilters = append([]*hcmpb.HttpFilter{plain("p")}, byRDS.HttpFilters...)
	inline.RouteSpecifier = &hcmpb.HttpConnectionManager_RouteConfig{RouteConfig: richRoutes(f)}
	seeds := []proto.Message{apiListener(byRDS), apiListener(inline)}
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
	fuzz(f, RouteConfigurationType, []proto.Message{richRoutes(f)}, checkRoutes)
}

func FuzzCluster(f *testing.F) {
	nested := picking(f, nestedWRR(2), `[RoundRobin]{}`)
	load := assignment(locality("a", 0, 1, host("::1"), withWeight(host("10.0.0.1"), 3)))
	seeds := []proto.Message{
		blue(f, ""), nested, xdsmsg.AggregateCluster("blue", "a", "b"), inlineCluster(clusterpb.Cluster_STATIC, load),
		inlineCluster(clusterpb.Cluster_STRICT_DNS, load),
		inlineCluster(clusterpb.Cluster_LOGICAL_DNS, assignment(locality("a", 0, 1, host("name.test")))),
	}
	fuzz(f, ClusterType, seeds, checkCluster)
}

func checkCluster(t *testing.T, c *Cluster) {
	if (c.Kind == ClusterAggregate) == (c.LBPolicy != "") || (c.Kind == ClusterAggregate) != (len(c.Underlying) > 0) {
		t.Errorf("Cluster = %+v, want a policy or clusters underlying", c)
	}
	if (c.Kind == ClusterEDS) != (c.EDSServiceName != "") {
		t.Errorf("Cluster = %+v, want a service name with EDS and only there", c)
	}
	if hasInline := c.Inline != nil; hasInline != (c.Kind == ClusterStatic || c.Kind.DNS()) {
		t.Errorf("Cluster = %+v, want inline endpoints with STATIC and DNS and only there", c)
	}
	if !c.Kind.DNS() {
		return
	}
	sums := map[uint32]uint64{}
	for _, l := range c.Resolved(func(name string) []string { return []string{name, "[::1]:1", name + "0"} }).Localities {
		if l.Weight == 0 || len(l.Endpoints) == 0 {
			t.Errorf("locality %+v without weight or endpoints", l)
		}
		if sums[l.Priority] += uint64(l.Weight); sums[l.Priority]>>32 != 0 {
			t.Errorf("priority %d has a weight of %d", l.Priority, sums[l.Priority])
		}
	}
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
func linearly(vh *VirtualHost, rpc *matching.RPC) *Route {
	path, _ := matching.SplitQuery(rpc.Method)
	h := rpc.Headers()
	for _, route := range vh.Routes {
		if route.Match.MatchesPath(path) && route.Match.MatchesRest(rpc, &h) {
			return route
		}
	}
	return nil
}

// nestedWRR is round robin, at the given depth of policies.
func nestedWRR(depth int) string {
	if depth == 1 {
		return `[RoundRobin]{}`
	}
	return wrrLocality(nestedWRR(depth - 1))
}

// inlineCluster is a Cluster with its endpoints in it.
func inlineCluster(kind clusterpb.Cluster_DiscoveryType, load *endpointpb.ClusterLoadAssignment) *clusterpb.Cluster {
	return &clusterpb.Cluster{Name: "blue", ClusterDiscoveryType: &clusterpb.Cluster_Type{Type: kind}, LoadAssignment: load}
}
