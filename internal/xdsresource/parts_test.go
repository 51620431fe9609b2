package xdsresource

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient"
)

// As messages, the routes would take ten times the memory of their bytes. The test runs alone, as it counts the bytes that the process allocates.
func TestDecodingRoutesTakesAFewTimesTheirBytes(t *testing.T) {
	const n = 50_000
	resource := xdsmsg.Any(manyRoutes(n, func(i int) *routepb.RouteMatch {
		return xdsmsg.Path(fmt.Sprintf("/organization.department.package%06d.Service/Method", i))
	}))
	allocated := func(run func()) float64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		run()
		runtime.ReadMemStats(&after)
		return float64(after.TotalAlloc-before.TotalAlloc) / float64(len(resource.GetValue()))
	}
	if times := allocated(func() {
		value, err := RouteConfigurationType.Decode(resource, xdsclient.DecodeOptions{})
		xdstest.NoError(t, err)
		xdstest.Equal(t, "routes", n+1, len(value.(*RouteConfiguration).VirtualHosts[0].Routes))
	}); times > 2 {
		t.Errorf("decoding allocates %.1f times the bytes of the resource", times)
	}
}

// Routes that differ only in name and match share all else, and are what they are one by one.
func TestRoutesTogetherAreAsAlone(t *testing.T) {
	t.Parallel()
	route := func(name, more string) *routepb.Route {
		return withText(t, &routepb.Route{Name: name}, more)
	}
	config := xdsmsg.RouteConfigOf("r",
		xdsmsg.VirtualHost("one", []string{"one"},
			route("a", `match{path:"/a"} route{cluster:"x" max_stream_duration{max_stream_duration{seconds:1}}}`),
			route("b", `match{prefix:"/b"} route{cluster:"x" max_stream_duration{max_stream_duration{seconds:1}}}`),
			route("c", `match{prefix:"/c" headers{name:"h" exact_match:"v"}} route{cluster:"x" max_stream_duration{max_stream_duration{seconds:1}}}`),
			route("", `match{prefix:"/d" query_parameters{name:"q"}} redirect{host_redirect:"h"}`),
			route("e", `match{path:"/e"} redirect{host_redirect:"h"}`),
			route("f", `match{prefix:""} route{cluster_specifier_plugin:"p"}`)),
		xdsmsg.VirtualHost("two", []string{"two"},
			route("a", `match{path:"/a"} route{cluster:"x" max_stream_duration{max_stream_duration{seconds:1}}}`)))
	config.VirtualHosts[1].RetryPolicy = &routepb.RetryPolicy{RetryOn: "internal"}
	config.ClusterSpecifierPlugins = []*routepb.ClusterSpecifierPlugin{
		withText(t, new(routepb.ClusterSpecifierPlugin), `extension{name:"p"} is_optional:true`)}
	// alone is what a route is without the others.
	alone := func(vh *routepb.VirtualHost, route *routepb.Route) []*Route {
		single, host := proto.CloneOf(config), proto.CloneOf(vh)
		host.Routes = []*routepb.Route{route}
		single.VirtualHosts = []*routepb.VirtualHost{host}
		return mustDecode[RouteConfiguration](t, RouteConfigurationType, single).VirtualHosts[0].Routes
	}
	for where, got := range map[string]*RouteConfiguration{
		"a resource": mustDecode[RouteConfiguration](t, RouteConfigurationType, config),
		"a Listener": mustDecode[Listener](t, ListenerType, xdsmsg.InlineListener("l", config)).RouteConfig,
	} {
		xdstest.Equal(t, "virtual hosts of "+where, len(config.VirtualHosts), len(got.VirtualHosts))
		for i, vh := range config.VirtualHosts {
			var want []*Route
			for _, route := range vh.Routes {
				want = append(want, alone(vh, route)...)
			}
			xdstest.Equal(t, where+", "+vh.Name, want, got.VirtualHosts[i].Routes, cmpopts.IgnoreUnexported(Forward{}, Route{}, matching.Regex{}))
		}
	}
}

// A Listener that has fields more than once, or several sources of routes, is what protobuf makes of it.
func TestOddRoutesInAListener(t *testing.T) {
	t.Parallel()
	field := func(number protowire.Number, values ...[]byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), slices.Concat(values...))
	}
	host := func(name string) []byte {
		return field(fieldRouteConfig, xdsmsg.Any(xdsmsg.RouteConfig("r", name, xdsmsg.PrefixRoute("/", "a"))).GetValue())
	}
	plain := xdsmsg.Any(validManager()).GetValue()
	manager, _ := without(plain, fieldRDS)
	rds := marshal(validManager().GetRds())
	listener := func(typeURL string, hcm ...[]byte) []byte {
		return slices.Concat(field(1, []byte("l")), field(19, field(1,
			field(1, []byte(typeURL)), field(2, slices.Concat(hcm...)))))
	}
	for name, tc := range map[string]struct {
		listener []byte
		hosts    int // -1: routes by RDS
		fault    string
	}{
		"as usual":        {listener(httpConnectionManagerTypeURL, manager, host("a")), 1, ""},
		"twice":           {listener(httpConnectionManagerTypeURL, manager, host("a"), host("b")), 2, ""},
		"empty again":     {listener(httpConnectionManagerTypeURL, manager, host("a"), field(fieldRouteConfig)), 1, ""},
		"after RDS":       {listener(httpConnectionManagerTypeURL, manager, field(fieldRDS, rds), host("a")), 1, ""},
		"RDS of a kind":   {listener(httpConnectionManagerTypeURL, manager, host("a"), []byte{fieldRDS << 3, 1}), 1, ""},
		"before RDS":      {listener(httpConnectionManagerTypeURL, manager, host("a"), field(fieldRDS, rds)), -1, ""},
		"of another type": {listener(unknownURL, manager, field(fieldRouteConfig, field(fieldVirtualHosts, []byte{0xff}))), 0, "api_listener.api_listener: has type"},
		"a broken host": {listener(httpConnectionManagerTypeURL, manager, field(fieldRouteConfig, field(fieldVirtualHosts, []byte{0xff}))), 0,
			hcmPath + ".route_config.virtual_hosts[0]: cannot be read as envoy.config.route.v3.VirtualHost"},
		"a broken route": {listener(httpConnectionManagerTypeURL, manager, field(fieldRouteConfig, field(fieldVirtualHosts, field(fieldRoutes, []byte{0xff})))), 0,
			hcmPath + ".route_config.virtual_hosts[0].routes[0]: cannot be read as envoy.config.route.v3.Route"},
		"a broken end": {listener(httpConnectionManagerTypeURL, manager, host("a"), []byte{0xff}), 0, "cannot be read as"},
	} {
		resource := &anypb.Any{TypeUrl: typeurl.Listener, Value: tc.listener}
		value, err := ListenerType.Decode(resource, xdsclient.DecodeOptions{})
		if tc.fault != "" {
			if err == nil || !strings.Contains(err.Error(), tc.fault) {
				t.Errorf("%s: got error %v, want %q", name, err, tc.fault)
			}
			continue
		}
		xdstest.NoError(t, err)
		got := -1
		if rc := value.(*Listener).RouteConfig; rc != nil {
			got = len(rc.VirtualHosts)
			path := uintptr(unsafe.Pointer(unsafe.StringData(rc.VirtualHosts[0].Routes[0].Match.Path)))
			if begin := uintptr(unsafe.Pointer(&tc.listener[0])); name == "as usual" && path-begin >= uintptr(len(tc.listener)) {
				t.Error("a route keeps a copy of the Listener")
			}
		}
		xdstest.Equal(t, name, tc.hosts, got)
	}
}

// A route that is like one in which nothing is ignored is not looked at; others are, each.
func TestIgnoredFieldsOfRoutesThatAreAlike(t *testing.T) {
	t.Parallel()
	route := func(text string) *routepb.Route { return withText(t, new(routepb.Route), text) }
	config := routeConfig(
		route(`match{path:"/a"} route{cluster:"x"}`),
		route(`match{path:"/b"} route{cluster:"x"}`),
		route(`name:"n" match{path:"/c" cookies{name:"c"}} route{cluster:"x"}`),
		route(`match{path:"/d" cookies{name:"c"}} route{cluster:"x"}`),
		route(`match{path:"/e"} route{cluster:"x"} tracing{}`),
		route(`match{path:"/f"} route{cluster:"x"} tracing{}`),
		route(`match{path:"/g"} route{cluster:"x"} tracing{}`))
	for at, resource := range map[string]*anypb.Any{
		"":                         xdsmsg.Any(config),
		hcmPath + ".route_config.": xdsmsg.Any(xdsmsg.InlineListener("l", config)),
	} {
		list, err := IgnoredFields(resource)
		xdstest.NoError(t, err)
		got := map[string]int{}
		for _, i := range list {
			got[i.Path] = i.Places
		}
		xdstest.Equal(t, "ignored fields and their places", map[string]int{
			at + "virtual_hosts[0].routes[2].match.cookies": 2,
			at + "virtual_hosts[0].routes[4].tracing":       3,
		}, got)
	}
}

// A field of the number of a part that is no message is unknown, and a part that cannot be read is an error, also where it is not used.
func TestMalformedParts(t *testing.T) {
	t.Parallel()
	field := func(number protowire.Number, value ...byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), value)
	}
	routes, endpoints := xdsmsg.Any(routeConfig(xdsmsg.PrefixRoute("/", "a"))), xdsmsg.Any(xdsmsg.SimpleEndpoints("c", "10.0.0.1:80"))
	for name, tc := range map[string]struct {
		typ  *xdsclient.ResourceType
		more []byte
		want string
	}{
		"hosts of another kind":      {RouteConfigurationType, []byte{fieldVirtualHosts << 3, 1}, ""},
		"a broken host":              {RouteConfigurationType, field(fieldVirtualHosts, 0xff), "virtual_hosts[1]: cannot be read as envoy.config.route.v3.VirtualHost"},
		"a broken route":             {RouteConfigurationType, field(fieldVirtualHosts, field(fieldRoutes, 0xff)...), "virtual_hosts[1].routes[0]: cannot be read as envoy.config.route.v3.Route"},
		"a broken end":               {RouteConfigurationType, []byte{0xff}, "cannot be read as envoy.config.route.v3.RouteConfiguration"},
		"a broken locality":          {EndpointsType, field(fieldLocalities, 0xff), "endpoints[1]: cannot be read as envoy.config.endpoint.v3.LocalityLbEndpoints"},
		"a broken endpoint":          {EndpointsType, field(fieldLocalities, field(fieldEndpoints, 0xff)...), "endpoints[1].lb_endpoints[0]: cannot be read as envoy.config.endpoint.v3.LbEndpoint"},
		"a broken end of endpoints":  {EndpointsType, []byte{0xff}, "cannot be read as envoy.config.endpoint.v3.ClusterLoadAssignment"},
		"localities of another kind": {EndpointsType, []byte{fieldLocalities << 3, 1}, ""},
		"no endpoints in a locality": {EndpointsType, field(fieldLocalities), ""},
	} {
		value := routes.GetValue()
		if tc.typ == EndpointsType {
			value = endpoints.GetValue()
		}
		_, err := tc.typ.Decode(&anypb.Any{TypeUrl: tc.typ.TypeURL, Value: slices.Concat(value, tc.more)}, xdsclient.DecodeOptions{})
		if got := fmt.Sprint(err); tc.want != "" && !strings.Contains(got, tc.want) || tc.want == "" && err != nil {
			t.Errorf("%s: got error %v, want %q", name, err, tc.want)
		}
	}
}
