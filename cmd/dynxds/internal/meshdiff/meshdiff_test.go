package meshdiff_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"

	_ "github.com/dynxds/dynxds" // the types of filters
	"github.com/dynxds/dynxds/cmd/dynxds/internal/meshdiff"
	"github.com/dynxds/dynxds/internal/xdstest"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
)

// resource reads a resource in JSON; the name of its type needs no package.
func resource(t *testing.T, typeName, text string) meshdiff.Version {
	t.Helper()
	packages := map[string]string{
		"Listener": "listener", "RouteConfiguration": "route", "Cluster": "cluster", "ClusterLoadAssignment": "endpoint",
	}
	a := new(anypb.Any)
	text = `{"@type": "` + "type.googleapis.com/envoy.config." + packages[typeName] + ".v3." + typeName + `", ` + strings.TrimPrefix(text, "{")
	xdstest.NoError(t, protojson.Unmarshal([]byte(text), a))
	return meshdiff.Version{Any: a}
}

func TestResource(t *testing.T) {
	t.Parallel()
	const (
		routes  = `{"virtual_hosts": [{"name": "a", "domains": ["*"], "routes": [`
		end     = `]}]}`
		toX     = `{"match": {"prefix": "/x"}, "route": {"cluster": "x"}}`
		toY     = `{"match": {"prefix": "/y"}, "route": {"cluster": "y"}}`
		manager = `{"name": "l", "api_listener": {"api_listener": {
			"@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager", "http_filters": [`
	)
	split := func(x, y string) string {
		return routes + `{"match": {"prefix": "/"}, "route": {"weighted_clusters": {"clusters": [
			{"name": "x", "weight": ` + x + `}, {"name": "y", "weight": ` + y + `}]}}}` + end
	}
	filter := func(name, config string) string {
		return `{"name": "` + name + `", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.` + config + `}}`
	}
	fault := func(percent string) string {
		return filter("fault", `fault.v3.HTTPFault", "abort": {"grpc_status": 14, "percentage": {"numerator": `+percent+`}}`)
	}
	router := filter("router", `router.v3.Router"`)
	for _, test := range []struct{ name, of, before, after, want string }{
		{"equal", "RouteConfiguration", split("1", "1"), split("1", "1"), ""},
		{"weights", "RouteConfiguration", split("95", "5"), split("1", "1"),
			`~ route prefix "/": clusters: "x" 95%, "y" 5% → "x" 50%, "y" 50%`},
		{"weights of equal shares", "RouteConfiguration", split("2", "2"), split("1", "1"), ""},
		{"routes in another order", "RouteConfiguration", routes + toX + "," + toY + end, routes + toY + "," + toX + end,
			`~ route prefix "/y": now before route prefix "/x"`},
		{"a route removed", "RouteConfiguration", routes + toX + "," + toY + end, routes + toX + end, `- route prefix "/y": to "y"`},
		{"one of two equal routes removed", "RouteConfiguration", routes + toX + "," + toX + end, routes + toX + end, `- route prefix "/x" #2: to "x"`},
		{"a redirect", "RouteConfiguration", routes + toX + end, routes + `{"match": {"prefix": "/x"}, "redirect": {"host_redirect": "h"}}` + end,
			`- route prefix "/x": clusters: "x"
+ route prefix "/x": redirect: {"host_redirect":"h"}`},
		{"a timeout", "RouteConfiguration", routes + toX + end, routes + `{"match": {"prefix": "/x"}, "route": {"cluster": "x", "timeout": "3s"}}` + end,
			`+ route prefix "/x": route.timeout: "3s"`},
		{"a condition that gRPC ignores", "RouteConfiguration", routes + toX + end,
			routes + `{"match": {"prefix": "/x", "tls_context": {"presented": true}}, "route": {"cluster": "x"}}` + end,
			`+ route prefix "/x": match.tls_context: {"presented":true}`},
		{"a mirror", "RouteConfiguration", routes + toX + end,
			routes + `{"match": {"prefix": "/x"}, "route": {"cluster": "x", "request_mirror_policies": [{"cluster": "m"}]}}` + end,
			`+ route prefix "/x": route.request_mirror_policies[m]: {"cluster":"m"}`},
		{"a match that clients reject", "RouteConfiguration", routes + end, routes + `{"match": {"safe_regex": {"regex": "("}}, "route": {"cluster": "x"}}` + end,
			`+ route {"safe_regex":{"regex":"("}}: to "x"`},
		{"another virtual host", "RouteConfiguration", routes + end, `{"virtual_hosts": [{"name": "b", "domains": ["b"]}]}`,
			`+ virtual host "b": {"name":"b","domains":["b"]}
- virtual host "a": {"name":"a","domains":["*"]}`},
		{"a header of a weighted cluster", "RouteConfiguration", split("1", "1"),
			strings.Replace(split("1", "1"), `"name": "y"`, `"name": "y", "request_headers_to_add": [{"header": {"key": "k", "value": "v"}}]`, 1),
			`+ route prefix "/": route.weighted_clusters.clusters[y].request_headers_to_add[k]: {"header":{"key":"k","value":"v"}}`},
		{"a header of a new weighted cluster", "RouteConfiguration", routes + `{"match": {"prefix": "/"}, "route": {"cluster": "x"}}` + end,
			strings.Replace(split("1", "1"), `"name": "y"`, `"name": "y", "request_headers_to_remove": ["k"]`, 1),
			`~ route prefix "/": clusters: "x" → "x" 50%, "y" 50%
+ route prefix "/": route.weighted_clusters: {"clusters":[{"name":"y","request_headers_to_remove":["k"]}]}`},
		{"a new route that does more than to forward", "RouteConfiguration", routes + toX + end,
			routes + toX + `,{"match": {"prefix": "/y"}, "name": "n", "route": {"cluster": "x", "timeout": "3s"}, "request_headers_to_remove": ["k"]}` + end,
			`+ route prefix "/y": to "x", {"route":{"timeout":"3s"},"request_headers_to_remove":["k"]}`},
		{"a new route to weighted clusters with headers", "RouteConfiguration", routes + end,
			strings.Replace(split("1", "1"), `"name": "y"`, `"name": "y", "request_headers_to_remove": ["k"]`, 1),
			`+ route prefix "/": to "x" 50%, "y" 50%, {"route":{"weighted_clusters":{"clusters":[{"name":"y","request_headers_to_remove":["k"]}]}}}`},
		{"a filter", "Listener", manager + fault("1") + "," + router + `]}}}`, manager + fault("2") + "," + router + `]}}}`,
			`~ api_listener.api_listener.http_filters[fault].typed_config.abort.percentage.numerator: 1 → 2`},
		{"filters in another order", "Listener", manager + fault("1") + "," + router + `]}}}`, manager + router + "," + fault("1") + `]}}}`,
			`~ api_listener.api_listener.http_filters[router]: now before http_filters[fault]`},
		{"fields of every kind", "Cluster",
			`{"name": "c", "connect_timeout": "1s", "lb_policy": "RING_HASH", "metadata": {"filter_metadata": {"a": {"x": 1}, "b": {}}}}`,
			`{"name": "c", "connect_timeout": "2s", "type": "EDS", "metadata": {"filter_metadata": {"a": {"x": 2}, "c": {}}}}`,
			`+ type: EDS
~ connect_timeout: "1s" → "2s"
- lb_policy: RING_HASH
~ metadata.filter_metadata["a"]: {"x":1} → {"x":2}
- metadata.filter_metadata["b"]: {}
+ metadata.filter_metadata["c"]: {}`},
		{"an endpoint", "ClusterLoadAssignment",
			`{"endpoints": [{"locality": {"zone": "z"}, "lb_endpoints": [{"endpoint": {"address": {"socket_address": {"address": "1.2.3.4", "port_value": 5}}}}]}]}`,
			`{"endpoints": [{"locality": {"zone": "z"}, "lb_endpoints": [{"health_status": "DRAINING", "endpoint": {"address": {"socket_address": {"address": "1.2.3.4", "port_value": 5}}}}]}]}`,
			`+ z, priority 0: endpoint 1.2.3.4:5: health_status: DRAINING`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			before, after := resource(t, test.of, test.before), resource(t, test.of, test.after)
			var got []string
			if c := meshdiff.Resource(before.Any.GetTypeUrl(), "r", before, after); c != nil {
				for _, f := range c.Fields {
					got = append(got, f.String())
				}
			}
			xdstest.Equal(t, "the fields", test.want, strings.Join(got, "\n"))
		})
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	const typeURL = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	failing := func(code codes.Code, text string) meshdiff.Version {
		return meshdiff.Version{Err: status.New(code, text)}
	}
	unknown := meshdiff.Version{Any: &anypb.Any{TypeUrl: typeURL, Value: []byte{0xff}}}
	routes := resource(t, "RouteConfiguration", `{"virtual_hosts": [{"name": "a", "routes": [{"match": {"prefix": "/x"}, "route": {"cluster": "x"}}]}]}`)
	frontend := []meshdiff.Clients{meshdiff.ClientsOf(map[string]string{"service": "f", "xds_routes": "grpc", "specificity": "3"}), {}}
	for _, test := range []struct {
		name          string
		before, after meshdiff.Version
		clients       []meshdiff.Clients
		want          string
	}{
		{"added", meshdiff.Version{}, routes, nil, "+ RouteConfiguration r: all clients\n    + route prefix \"/x\": to \"x\"\n"},
		{"removed", routes, meshdiff.Version{}, frontend,
			"- RouteConfiguration r: gRPC clients other than those of dynxds with {service=f}; all other clients\n    - route prefix \"/x\": to \"x\"\n"},
		{"an error", routes, failing(codes.NotFound, "no \x1b[31mservice"), nil,
			"~ RouteConfiguration r: all clients\n    + error in its place: NotFound: no \\x1b[31mservice\n    - route prefix \"/x\": to \"x\"\n"},
		{"an error gone", failing(codes.NotFound, "x"), routes, nil,
			"~ RouteConfiguration r: all clients\n    - error in its place: NotFound: x\n    + route prefix \"/x\": to \"x\"\n"},
		{"another error", failing(codes.NotFound, "x"), failing(codes.NotFound, "y"), nil,
			"~ RouteConfiguration r: all clients\n    ~ error in its place: NotFound: x → NotFound: y\n"},
		{"the same error", failing(codes.NotFound, "x"), failing(codes.NotFound, "x"), nil, ""},
		{"what cannot be read", unknown, routes, nil,
			"~ RouteConfiguration r: all clients\n    ~ content: 65 bytes that cannot be read → {\"@type\":\"" + typeURL + "\",\"virtual_hosts\":" +
				`[{"name":"a","routes":[{"match":{"prefix":"/x"},"route":{"cluster":"x"}}]}]}` + "\n"},
		{"nothing", meshdiff.Version{}, meshdiff.Version{}, nil, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var changes []meshdiff.Change
			if c := meshdiff.Resource(typeURL, "r", test.before, test.after); c != nil {
				c.Clients = test.clients
				changes = append(changes, *c)
			}
			if got := meshdiff.Text(changes); got != test.want {
				t.Errorf("%s", cmp.Diff(test.want, got))
			}
		})
	}
}

// Many kinds of clients are counted; the JSON has all of them.
func TestManyKindsOfClients(t *testing.T) {
	t.Parallel()
	c := meshdiff.Change{Op: meshdiff.Added, TypeURL: "a.T", Name: "n"}
	for i := range 30 {
		c.Clients = append(c.Clients, meshdiff.ClientsOf(map[string]string{"n": strings.Repeat("x", i+1)}))
	}
	if got := meshdiff.Text([]meshdiff.Change{c}); !strings.HasSuffix(got, "; and 20 more kinds\n") {
		t.Errorf("got %q", got)
	}
	text, err := json.Marshal(c)
	if n := strings.Count(string(text), `"tags"`); err != nil || n != 30 {
		t.Errorf("the JSON has %d kinds of clients (error: %v), want 30: %s", n, err, text)
	}
}
