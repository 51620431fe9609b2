package e2e_test

import (
	"context"
	"testing"
	"time"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// gRFC A28, "Response validation", and Envoy's RouteMatch: matches of the method and of headers, those that gRPC adds
// included, over real RPCs. RPCs that match go to one cluster, the others to another.
func TestMatchesEndToEnd(t *testing.T) {
	t.Parallel()
	inOneWay(t, "the routes stay the same")
	type md = []string
	const h = `prefix: "" headers { name: "h" `
	for _, tc := range []struct {
		name, match string
		yes, no     md // metadata of RPCs that match, and that do not; nil: none
		opt         grpc.CallOption
	}{
		{"path", `path: "/grpc.testing.TestService/UnaryCall"`, md{}, nil, nil},
		{"prefix", `prefix: "/grpc.testing."`, md{}, nil, nil},
		{"safe_regex", `safe_regex { regex: "/grpc[.].*/Unary.*" }`, md{}, nil, nil},
		{"header exact", h + `string_match { exact: "v1" } }`, md{"H", "v1"}, md{"h", "V1"}, nil},
		{"header of several values", h + `string_match { exact: "a,b" } }`, md{"h", "a", "h", "b"}, md{"h", "b", "h", "a"}, nil},
		{"header -bin", `prefix: "" headers { name: "h-bin" present_match: true }`, nil, md{"h-bin", "x"}, nil},
		{":method", `prefix: "" headers { name: ":method" string_match { exact: "POST" } }`, md{}, nil, nil},
		{":path", `prefix: "" headers { name: ":path" string_match { exact: "/grpc.testing.TestService/UnaryCall" } }`, md{}, nil, nil},
		{":authority", `prefix: "" headers { name: ":authority" string_match { exact: "echo.example.com" } }`, md{}, nil, nil},
		{":authority of grpc.CallAuthority", `prefix: "" headers { name: ":authority" string_match { exact: "mine" } }`, md{}, nil, grpc.CallAuthority("mine")},
		{":scheme", `prefix: "" headers { name: ":scheme" string_match { exact: "http" } }`, md{}, nil, nil},
		{"content-type", `prefix: "" headers { name: "content-type" string_match { exact: "application/grpc" } }`, md{}, nil, nil},
		{"content-type of grpc.CallContentSubtype", `prefix: "" headers { name: "content-type" string_match { exact: "application/grpc+proto" } }`, md{}, nil, grpc.CallContentSubtype("proto")},
		{"runtime_fraction of all", `prefix: "" runtime_fraction { default_value { numerator: 100 } }`, md{}, nil, nil},
		{"runtime_fraction of none", `prefix: "" runtime_fraction { default_value { numerator: 0 } }`, nil, md{}, nil},
	} {
		xdstest.Parallel(t, tc.name, func(t *testing.T) {
			m := newMesh(t)
			hit, miss := testutils.StartBackend(t, "hit"), testutils.StartBackend(t, "miss")
			m.serveRoutes([]*routepb.Route{routeOf(`match { %s } route { cluster: "hit" }`, tc.match), toCluster("miss")}, hit, miss)
			cc := m.dial("xds:///" + service)
			for want, md := range map[string][]string{"hit": tc.yes, "miss": tc.no} {
				if md == nil {
					continue
				}
				opts := []grpc.CallOption{grpc.WaitForReady(true)}
				if tc.opt != nil {
					opts = append(opts, tc.opt)
				}
				got, err := call(metadata.AppendToOutgoingContext(testutils.Context(t), md...), cc, unary, opts...)
				if err != nil || got != want {
					t.Errorf("an RPC with %q was answered by %q (%v), want %q", md, got, err, want)
				}
			}
		})
	}
}

// Envoy, RouteMatch.query_parameters: a gRPC method may carry a query.
func TestQueryMatchesEndToEnd(t *testing.T) {
	t.Parallel()
	inOneWay(t, "the routes stay the same")
	m := newMesh(t)
	m.serveRoutes([]*routepb.Route{
		routeOf(`match { path: "/s/m" query_parameters { name: "v" string_match { exact: "2" } } } direct_response { status: 401 }`),
		routeOf(`match { path: "/s/m" query_parameters { name: "v" present_match: true } } direct_response { status: 403 }`),
		routeOf(`match { prefix: "" } direct_response { status: 503 }`),
	})
	cc := m.dial("xds:///" + service)
	for method, want := range map[string]codes.Code{
		"/s/m?v=2": codes.Unauthenticated, "/s/m?v=3": codes.PermissionDenied, "/s/m?w=2": codes.Unavailable, "/s/m": codes.Unavailable,
	} {
		err := cc.Invoke(testutils.Context(t), method, empty, new(routepb.Route), grpc.WaitForReady(true))
		checkStatus(t, err, want)
	}
}

// gRFC A28, "Response validation": an action that gRPC does not carry out fails the
// RPCs that match its route, with UNAVAILABLE; a route to an optional plug-in that the
// client does not have, or without a cluster specifier, is as if it was not there.
func TestUnsupportedActions(t *testing.T) {
	t.Parallel()
	m, backend := newMesh(t), testutils.StartBackend(t, "b")
	rc := with(xdsmsg.RouteConfig(service, service,
		routeOf(`match { prefix: %q } non_forwarding_action {}`, unaryMethod),
		routeOf(`match { prefix: "/grpc.testing.TestService/StreamingOutput" } filter_action {}`),
		routeOf(`match { prefix: "/grpc.testing.TestService/StreamingInput" }`),
		routeOf(`match { prefix: "" } route { cluster_specifier_plugin: "p" }`),
		routeOf(`match { prefix: "" } route {}`), toCluster("b")),
		`cluster_specifier_plugins { is_optional: true extension { name: "p" typed_config { type_url: "type.googleapis.com/test.Plugin" } } }`)
	cc := m.dialServing(clusterOf("b", backend), xdsmsg.DefaultListener(service, service), rc)
	mustReach(t, cc, bidiStreaming, backend)
	for k, why := range map[kind]string{unary: "non_forwarding_action", serverStreaming: "filter_action", clientStreaming: "no action"} {
		checkStatus(t, callFor(testutils.Context(t), cc, k).err, codes.Unavailable, why, service)
	}
}

// gRFC A31, "Max Stream Duration": grpc_timeout_header_max goes before
// max_stream_duration, and both before the Listener's; 0 is no bound; what the
// application has set is kept if it is sooner.
func TestMaxStreamDurationsEndToEnd(t *testing.T) {
	t.Parallel()
	m, backend := newMesh(t), testutils.StartBackend(t, "b")
	bounded := func(method, duration string) *routepb.Route {
		return with(xdsmsg.PathRoute("/grpc.testing.TestService/"+method, "b"), `route { max_stream_duration { %s } }`, duration)
	}
	manager := new(hcmpb.HttpConnectionManager)
	xdstest.NoError(t, xdsmsg.DefaultListener(service, service).GetApiListener().GetApiListener().UnmarshalTo(manager))
	with(manager, `common_http_protocol_options { max_stream_duration { seconds: 3600 } }`)
	m.set(clusterOf("b", backend), xdsmsg.APIListener(service, manager), xdsmsg.RouteConfig(service, service,
		bounded("UnaryCall", `max_stream_duration { seconds: 1 } grpc_timeout_header_max { seconds: 60 }`),
		bounded("StreamingOutputCall", `max_stream_duration { seconds: 60 }`),
		bounded("StreamingInputCall", `max_stream_duration {}`),
		toCluster("b")))
	cc := m.dial("xds:///" + service)
	for _, tc := range []struct {
		kind kind
		want time.Duration // 0: none
	}{{unary, time.Minute}, {serverStreaming, time.Minute}, {clientStreaming, 0}, {bidiStreaming, time.Hour}} {
		start := time.Now()
		backendFor(t.Context(), t, cc, tc.kind)
		switch got := backend.Last().Deadline; {
		case tc.want == 0 && !got.IsZero(), tc.want > 0 && got.IsZero():
			t.Errorf("%s RPC: deadline %v, want in %v", tc.kind, got, tc.want)
		case tc.want > 0 && (got.Before(start.Add(tc.want-time.Second)) || got.After(time.Now().Add(tc.want+time.Second))):
			t.Errorf("%s RPC: deadline in %v, want %v", tc.kind, time.Until(got), tc.want)
		}
		sooner, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		_, err := call(sooner, cc, tc.kind)
		cancel()
		xdstest.NoError(t, err)
		if in := time.Until(backend.Last().Deadline); in > 20*time.Second {
			t.Errorf("%s RPC: deadline in %v, and the application has set 20s", tc.kind, in)
		}
	}
}
