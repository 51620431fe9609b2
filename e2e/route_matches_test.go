package e2e_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// gRFC A28, "Response validation", and Envoy's RouteMatch: every kind of match, over
// real RPCs. RPCs that match go to one cluster, the others to another.
func TestMatchesEndToEnd(t *testing.T) {
	t.Parallel()
	type match = routepb.RouteMatch
	type matcher = routepb.HeaderMatcher
	type text = matcherpb.StringMatcher
	insensitive := func(m *match) *match {
		m.CaseSensitive = wrapperspb.Bool(false)
		return m
	}
	with := func(headers ...*matcher) *match {
		return &match{PathSpecifier: xdsmsg.Prefix("").PathSpecifier, Headers: headers}
	}
	is := func(name string, m *text) *matcher {
		return &matcher{Name: name, HeaderMatchSpecifier: &routepb.HeaderMatcher_StringMatch{StringMatch: m}}
	}
	exact := func(name, value string) *matcher {
		return is(name, &text{MatchPattern: &matcherpb.StringMatcher_Exact{Exact: value}})
	}
	present := func(name string) *matcher {
		return &matcher{Name: name, HeaderMatchSpecifier: &routepb.HeaderMatcher_PresentMatch{PresentMatch: true}}
	}
	inverted := func(m *matcher) *matcher { m.InvertMatch = true; return m }
	emptyIfMissing := func(m *matcher) *matcher { m.TreatMissingHeaderAsEmpty = true; return m }
	share := func(percent uint32) *match {
		m := xdsmsg.Prefix("")
		m.RuntimeFraction = &corepb.RuntimeFractionalPercent{DefaultValue: &typepb.FractionalPercent{Numerator: percent}}
		return m
	}
	regex := &matcherpb.RegexMatcher{Regex: "v[0-9]+"}
	for _, tc := range []struct {
		name    string
		match   *match
		yes, no []string // metadata; nil: not asked
		opts    []grpc.CallOption
	}{
		{name: "path", match: xdsmsg.Path(unaryMethod), yes: []string{}},
		{name: "another path", match: xdsmsg.Path(emptyMethod), no: []string{}},
		{name: "path, case_sensitive: false", match: insensitive(xdsmsg.Path("/GRPC.testing.testservice/unaryCALL")), yes: []string{}},
		{name: "path in another case", match: xdsmsg.Path("/GRPC.testing.TestService/UnaryCall"), no: []string{}},
		{name: "prefix", match: xdsmsg.Prefix("/grpc.testing."), yes: []string{}},
		{name: "prefix, case_sensitive: false", match: insensitive(xdsmsg.Prefix("/GRPC.")), yes: []string{}},
		{name: "path_separated_prefix", match: &match{PathSpecifier: &routepb.RouteMatch_PathSeparatedPrefix{PathSeparatedPrefix: "/grpc.testing.TestService"}}, yes: []string{}},
		{name: "path_separated_prefix that ends elsewhere", match: &match{PathSpecifier: &routepb.RouteMatch_PathSeparatedPrefix{PathSeparatedPrefix: "/grpc.testing.Test"}}, no: []string{}},
		{name: "safe_regex", match: &match{PathSpecifier: &routepb.RouteMatch_SafeRegex{SafeRegex: &matcherpb.RegexMatcher{Regex: "/grpc[.].*/Unary.*"}}}, yes: []string{}},
		{name: "safe_regex of a part", match: &match{PathSpecifier: &routepb.RouteMatch_SafeRegex{SafeRegex: &matcherpb.RegexMatcher{Regex: "/grpc[.].*/Unary"}}}, no: []string{}},
		{name: "header exact", match: with(exact("h", "v1")), yes: []string{"H", "v1"}, no: []string{"h", "V1"}},
		{name: "header exact, ignore_case", match: with(is("h", &text{MatchPattern: &matcherpb.StringMatcher_Exact{Exact: "v1"}, IgnoreCase: true})), yes: []string{"h", "V1"}, no: []string{"h", "V2"}},
		{name: "header prefix", match: with(is("h", &text{MatchPattern: &matcherpb.StringMatcher_Prefix{Prefix: "v"}})), yes: []string{"h", "v1"}, no: []string{"h", "1v"}},
		{name: "header suffix", match: with(is("h", &text{MatchPattern: &matcherpb.StringMatcher_Suffix{Suffix: "1"}})), yes: []string{"h", "v1"}, no: []string{"h", "1v"}},
		{name: "header contains", match: with(is("h", &text{MatchPattern: &matcherpb.StringMatcher_Contains{Contains: "b"}})), yes: []string{"h", "abc"}, no: []string{"h", "ac"}},
		{name: "header regex", match: with(is("h", &text{MatchPattern: &matcherpb.StringMatcher_SafeRegex{SafeRegex: regex}})), yes: []string{"h", "v12"}, no: []string{"h", "v12x"}},
		{
			name:  "header range",
			match: with(&matcher{Name: "h", HeaderMatchSpecifier: &routepb.HeaderMatcher_RangeMatch{RangeMatch: &typepb.Int64Range{Start: 1, End: 3}}}),
			yes:   []string{"h", "2"}, no: []string{"h", "3"},
		},
		{name: "header present", match: with(present("h")), yes: []string{"h", ""}, no: []string{}},
		{name: "header absent", match: with(inverted(present("h"))), yes: []string{}, no: []string{"h", ""}},
		{name: "header inverted", match: with(inverted(exact("h", "v1"))), yes: []string{"h", "v2"}, no: []string{}},
		{name: "header inverted, missing as empty", match: with(emptyIfMissing(inverted(exact("h", "v1")))), yes: []string{}, no: []string{"h", "v1"}},
		{name: "header of several values", match: with(exact("h", "a,b")), yes: []string{"h", "a", "h", "b"}, no: []string{"h", "b", "h", "a"}},
		{name: "header -bin", match: with(present("h-bin")), no: []string{"h-bin", "x"}},
		{name: "all of several", match: with(exact("a", "1"), exact("b", "2")), yes: []string{"a", "1", "b", "2"}, no: []string{"a", "1"}},
		{name: ":method", match: with(exact(":method", "POST")), yes: []string{}},
		{name: ":path", match: with(exact(":path", unaryMethod)), yes: []string{}},
		{name: ":authority", match: with(exact(":authority", service)), yes: []string{}},
		{name: ":authority of grpc.CallAuthority", match: with(exact(":authority", "mine")), yes: []string{}, opts: []grpc.CallOption{grpc.CallAuthority("mine")}},
		{name: ":scheme", match: with(exact(":scheme", "http")), yes: []string{}},
		{name: "content-type", match: with(exact("content-type", "application/grpc")), yes: []string{}},
		{
			name: "content-type of grpc.CallContentSubtype", match: with(exact("content-type", "application/grpc+proto")),
			yes: []string{}, opts: []grpc.CallOption{grpc.CallContentSubtype("proto")},
		},
		{name: "runtime_fraction of all", match: share(100), yes: []string{}},
		{name: "runtime_fraction of none", match: share(0), no: []string{}},
	} {
		xdstest.Parallel(t, tc.name, func(t *testing.T) {
			m := newMesh(t)
			hit, miss := testutils.StartBackend(t, "hit"), testutils.StartBackend(t, "miss")
			m.serveRoutes([]*routepb.Route{xdsmsg.Route(tc.match, xdsmsg.ToCluster("hit")), toCluster("miss")}, hit, miss)
			cc := m.dial("xds:///" + service)
			for want, md := range map[string][]string{"hit": tc.yes, "miss": tc.no} {
				if md == nil {
					continue
				}
				ctx := metadata.AppendToOutgoingContext(testutils.Context(t), md...)
				got, err := call(ctx, cc, unary, append([]grpc.CallOption{grpc.WaitForReady(true)}, tc.opts...)...)
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
	m := newMesh(t)
	respond := func(match *routepb.RouteMatch, status uint32) *routepb.Route {
		return &routepb.Route{Match: match, Action: &routepb.Route_DirectResponse{DirectResponse: &routepb.DirectResponseAction{Status: status}}}
	}
	query := func(q *routepb.QueryParameterMatcher) *routepb.RouteMatch {
		m := xdsmsg.Path("/s/m")
		m.QueryParameters = []*routepb.QueryParameterMatcher{q}
		return m
	}
	m.serveRoutes([]*routepb.Route{
		respond(query(&routepb.QueryParameterMatcher{Name: "v", QueryParameterMatchSpecifier: &routepb.QueryParameterMatcher_StringMatch{
			StringMatch: &matcherpb.StringMatcher{MatchPattern: &matcherpb.StringMatcher_Exact{Exact: "2"}},
		}}), 401),
		respond(query(&routepb.QueryParameterMatcher{Name: "v", QueryParameterMatchSpecifier: &routepb.QueryParameterMatcher_PresentMatch{PresentMatch: true}}), 403),
		respond(xdsmsg.Prefix(""), 503),
	})
	cc := m.dial("xds:///" + service)
	for method, want := range map[string]codes.Code{
		"/s/m?v=2": codes.Unauthenticated, "/s/m?v=3": codes.PermissionDenied, "/s/m?w=2": codes.Unavailable, "/s/m": codes.Unavailable,
	} {
		err := cc.Invoke(testutils.Context(t), method, empty, new(routepb.Route), grpc.WaitForReady(true))
		checkStatus(t, err, want)
	}
}

// gRFC A27, "RouteConfiguration Proto": the virtual host is that of the channel's
// authority; exact, then the longest suffix, then the longest prefix, then "*".
func TestVirtualHostsEndToEnd(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	var hosts []*routepb.VirtualHost
	for i, domain := range []string{"*", "a.*", "a.b.*", "*.d", "*.c.d", "A.b.c.d"} {
		id := fmt.Sprint("host-", i)
		b := testutils.StartBackend(t, id)
		m.set(clusterOf(id, b)...)
		hosts = append(hosts, xdsmsg.VirtualHost(id, []string{domain}, toCluster(id)))
	}
	m.set(xdsmsg.DefaultListener(service, service), xdsmsg.RouteConfigOf(service, hosts...))
	for authority, want := range map[string]string{
		"a.b.c.d": "host-5", "A.B.C.D": "host-5", "x.c.d": "host-4", "a.b.d": "host-3", "a.b.x": "host-2", "a.x": "host-1", "x": "host-0",
	} {
		cc := m.dial("xds:///"+service, grpc.WithAuthority(authority))
		if got, err := call(testutils.Context(t), cc, unary, grpc.WaitForReady(true)); err != nil || got != want {
			t.Errorf("authority %q: answered by %q (%v), want %q", authority, got, err, want)
		}
	}
}

// gRFC A28, "Response validation": an action that gRPC does not carry out fails the
// RPCs that match its route, with UNAVAILABLE; a route to an optional plug-in that the
// client does not have, or without a cluster specifier, is as if it was not there.
func TestUnsupportedActions(t *testing.T) {
	t.Parallel()
	m, backend := newMesh(t), testutils.StartBackend(t, "b")
	unroutable := func(prefix string, route *routepb.Route) *routepb.Route {
		route.Match = xdsmsg.Prefix(prefix)
		return route
	}
	plugin := xdsmsg.Route(xdsmsg.Prefix(""), &routepb.RouteAction{ClusterSpecifier: &routepb.RouteAction_ClusterSpecifierPlugin{ClusterSpecifierPlugin: "p"}})
	unset := xdsmsg.Route(xdsmsg.Prefix(""), &routepb.RouteAction{})
	rc := xdsmsg.RouteConfig(service, service,
		unroutable(unaryMethod, &routepb.Route{Action: &routepb.Route_NonForwardingAction{NonForwardingAction: &routepb.NonForwardingAction{}}}),
		unroutable("/grpc.testing.TestService/StreamingOutput", &routepb.Route{Action: &routepb.Route_FilterAction{FilterAction: &routepb.FilterAction{}}}),
		unroutable("/grpc.testing.TestService/StreamingInput", &routepb.Route{}),
		plugin, unset, toCluster("b"))
	rc.ClusterSpecifierPlugins = []*routepb.ClusterSpecifierPlugin{{
		Extension:  &corepb.TypedExtensionConfig{Name: "p", TypedConfig: &anypb.Any{TypeUrl: "type.googleapis.com/test.Plugin"}},
		IsOptional: true,
	}}
	m.set(append(clusterOf("b", backend), xdsmsg.DefaultListener(service, service), rc)...)
	cc := m.dial("xds:///" + service)
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
	bounded := func(method string, d *routepb.RouteAction_MaxStreamDuration) *routepb.Route {
		route := xdsmsg.PathRoute("/grpc.testing.TestService/"+method, "b")
		route.GetRoute().MaxStreamDuration = d
		return route
	}
	second, minute, hour := durationpb.New(time.Second), durationpb.New(time.Minute), durationpb.New(time.Hour)
	manager := new(hcmpb.HttpConnectionManager)
	xdstest.NoError(t, xdsmsg.DefaultListener(service, service).GetApiListener().GetApiListener().UnmarshalTo(manager))
	manager.CommonHttpProtocolOptions = &corepb.HttpProtocolOptions{MaxStreamDuration: hour}
	m.set(append(clusterOf("b", backend), xdsmsg.APIListener(service, manager), xdsmsg.RouteConfig(service, service,
		bounded("UnaryCall", &routepb.RouteAction_MaxStreamDuration{MaxStreamDuration: second, GrpcTimeoutHeaderMax: minute}),
		bounded("StreamingOutputCall", &routepb.RouteAction_MaxStreamDuration{MaxStreamDuration: minute}),
		bounded("StreamingInputCall", &routepb.RouteAction_MaxStreamDuration{MaxStreamDuration: durationpb.New(0)}),
		toCluster("b")))...)
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
