package xdsresource

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient"
)

// As messages, the routes would take ten times the memory of their bytes, and again when it is looked for ignored
// fields. The test runs alone, as it counts the bytes that the process allocates.
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
		_, value, err := RouteConfigurationType.Decode(resource, xdsclient.DecodeOptions{})
		xdstest.NoError(t, err)
		if got := len(value.(*RouteConfiguration).VirtualHosts[0].Routes); got != n+1 {
			t.Errorf("got %d routes", got)
		}
	}); times > 3 {
		t.Errorf("decoding allocates %.1f times the bytes of the resource", times)
	}
	// What is allocated here is not kept.
	if times := allocated(func() {
		_, err := IgnoredFields(resource)
		xdstest.NoError(t, err)
	}); times > 15 {
		t.Errorf("looking for ignored fields allocates %.1f times the bytes of the resource", times)
	}
}

// Routes that differ only in name and match share all else, and are what they are one by one.
func TestRoutesInPartsAreAsInAMessage(t *testing.T) {
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
	inParts := mustDecode[RouteConfiguration](t, RouteConfigurationType, config)
	inListener := mustDecode[Listener](t, ListenerType, xdsmsg.InlineListener("l", config)).RouteConfig
	for i, vh := range inListener.VirtualHosts {
		xdstest.Equal(t, vh.Name, vh.Routes, inParts.VirtualHosts[i].Routes, cmpopts.IgnoreUnexported(Forward{}), cmpopts.IgnoreUnexported(matching.Regex{}))
	}
}

// A field of the number of virtual hosts or routes that is no message is unknown, and one that is
// malformed is a fault.
func TestMalformedPartsOfARouteConfiguration(t *testing.T) {
	t.Parallel()
	good := xdsmsg.Any(routeConfig(xdsmsg.PrefixRoute("/", "a")))
	field := func(number protowire.Number, value ...byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), value)
	}
	for name, tc := range map[string]struct {
		more []byte
		want string
	}{
		"another kind":   {[]byte{fieldVirtualHosts << 3, 1}, ""},
		"a broken host":  {field(fieldVirtualHosts, 0xff), "virtual_hosts[1]: cannot be read as envoy.config.route.v3.VirtualHost"},
		"a broken route": {field(fieldVirtualHosts, field(fieldRoutes, 0xff)...), "virtual_hosts[1].routes[0]: cannot be read as envoy.config.route.v3.Route"},
		"a broken end":   {[]byte{0xff}, "cannot be read as envoy.config.route.v3.RouteConfiguration"},
	} {
		a := xdsmsg.Any(routeConfig())
		a.Value = append(append([]byte(nil), good.GetValue()...), tc.more...)
		_, _, err := RouteConfigurationType.Decode(a, xdsclient.DecodeOptions{})
		if tc.want == "" {
			xdstest.NoError(t, err)
			continue
		}
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got error %v, want %q", name, err, tc.want)
		}
		if _, err := IgnoredFields(a); err == nil {
			t.Errorf("%s: its ignored fields are listed", name)
		}
	}
}

// Endpoints that are read one by one are what they are in a message.
func TestEndpointsInPartsAreAsInAMessage(t *testing.T) {
	t.Parallel()
	pb := withText(t, &endpointpb.ClusterLoadAssignment{ClusterName: "c"}, `
		endpoints { locality { zone: "a" } load_balancing_weight { value: 1 }
			lb_endpoints { load_balancing_weight { value: 3 } health_status: DRAINING endpoint {
				hostname: "h" address { socket_address { address: "10.0.0.1" port_value: 1 } }
				additional_addresses { address { socket_address { address: "10.0.0.2" port_value: 1 } } } }
				metadata { filter_metadata { key: "envoy.lb" value { fields { key: "hash_key" value { string_value: "k" } } } } } }
			lb_endpoints { endpoint { address { socket_address { address: "10.0.0.3" port_value: 1 } } } } }
		endpoints { locality { zone: "b" } lb_endpoints { endpoint { address { socket_address { address: "10.0.0.4" port_value: 1 } } } } }
		endpoints { locality { zone: "c" } load_balancing_weight { value: 2 } priority: 1
			lb_endpoints { endpoint { address { socket_address { address: "10.0.0.5" port_value: 1 } } } } }`)
	v := newValidator(xdsclient.DecodeOptions{})
	want := assignmentOf(v, nil, pb, ClusterEDS)
	want.Ignored = v.ignored.list()
	xdstest.NoError(t, v.err())
	xdstest.Equal(t, "the endpoints", want, mustDecode[Endpoints](t, EndpointsType, pb))
}

// A locality or an endpoint that cannot be read is a fault, also where it is not used.
func TestMalformedPartsOfAClusterLoadAssignment(t *testing.T) {
	t.Parallel()
	field := func(number protowire.Number, value ...byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), value)
	}
	for name, tc := range map[string]struct {
		more []byte
		want string
	}{
		"a broken locality":  {field(fieldLocalities, 0xff), "endpoints[1]: cannot be read as envoy.config.endpoint.v3.LocalityLbEndpoints"},
		"a broken endpoint":  {field(fieldLocalities, field(fieldEndpoints, 0xff)...), "endpoints[1].lb_endpoints[0]: cannot be read as envoy.config.endpoint.v3.LbEndpoint"},
		"a broken end":       {[]byte{0xff}, "cannot be read as envoy.config.endpoint.v3.ClusterLoadAssignment"},
		"another kind":       {[]byte{fieldLocalities << 3, 1}, ""},
		"no endpoints in it": {field(fieldLocalities), ""},
	} {
		a := xdsmsg.Any(xdsmsg.SimpleEndpoints("c", "10.0.0.1:80"))
		a.Value = append(a.Value, tc.more...)
		_, _, err := EndpointsType.Decode(a, xdsclient.DecodeOptions{})
		if got := fmt.Sprint(err); tc.want != "" && !strings.Contains(got, tc.want) || tc.want == "" && err != nil {
			t.Errorf("%s: got error %v, want %q", name, err, tc.want)
		}
	}
}
