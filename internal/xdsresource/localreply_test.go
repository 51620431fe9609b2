package xdsresource

import (
	"fmt"
	"strings"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
)

func respond(pb *routepb.DirectResponseAction) *routepb.Route {
	return &routepb.Route{Match: xdsmsg.Prefix("/"), Action: &routepb.Route_DirectResponse{DirectResponse: pb}}
}

func inline(body string) *corepb.DataSource {
	return &corepb.DataSource{Specifier: &corepb.DataSource_InlineString{InlineString: body}}
}

// gRPC, "HTTP to gRPC Status Code Mapping".
func TestDirectResponse(t *testing.T) {
	t.Parallel()
	for status, want := range map[uint32]codes.Code{
		200: codes.Unknown, 204: codes.Unknown, 302: codes.Unknown,
		400: codes.Internal, 401: codes.Unauthenticated, 403: codes.PermissionDenied, 404: codes.Unimplemented, 418: codes.Unknown,
		429: codes.Unavailable, 500: codes.Unknown, 502: codes.Unavailable, 503: codes.Unavailable, 504: codes.Unavailable, 599: codes.Unknown,
	} {
		route := respond(&routepb.DirectResponseAction{Status: status, Body: inline("go away")})
		got := decodeRoutes(t, route).Routes[0].Action
		xdstest.Equal(t, fmt.Sprintf("status %d", status), Action(&DirectResponse{HTTPStatus: int(status), Code: want, Body: "go away"}), got)
	}
}

func TestDirectResponseBody(t *testing.T) {
	t.Parallel()
	const at = "virtual_hosts[0].routes[0].direct_response.body"
	fromFile := &corepb.DataSource{Specifier: &corepb.DataSource_Filename{Filename: "/etc/passwd"}}
	for _, tc := range []struct {
		given   string
		body    *corepb.DataSource
		limit   *wrapperspb.UInt32Value
		want    string
		ignored []note
		faults  []fault
	}{
		{given: "none"},
		{given: "bytes", body: &corepb.DataSource{Specifier: &corepb.DataSource_InlineBytes{InlineBytes: []byte("a\xffb")}}, want: "a\uFFFDb"},
		{given: "of a file", body: fromFile, ignored: []note{{at, "the body must be inline_string or inline_bytes, is filename"}}},
		{given: "4096 bytes", body: inline(strings.Repeat("x", 4096)), want: strings.Repeat("x", 4096)},
		{given: "4097 bytes", body: inline(strings.Repeat("x", 4097)), faults: []fault{{at, "has 4097 bytes, more than max_direct_response_body_size_bytes, 4096"}}},
		{given: "4097 bytes, which are allowed", body: inline(strings.Repeat("x", 4097)), limit: wrapperspb.UInt32(5000), want: strings.Repeat("x", 4097)},
		{given: "none allowed", body: inline("x"), limit: wrapperspb.UInt32(0), faults: []fault{{at, "has 1 bytes, more than max_direct_response_body_size_bytes, 0"}}},
	} {
		t.Run(tc.given, func(t *testing.T) {
			t.Parallel()
			config := routeConfig(respond(&routepb.DirectResponseAction{Status: 503, Body: tc.body}))
			config.MaxDirectResponseBodySizeBytes = tc.limit
			if checkFaults(t, RouteConfigurationType, config, tc.faults); tc.faults != nil {
				return
			}
			rc := mustDecodeRoutes(t, config)
			checkIgnored(t, rc.Ignored, tc.ignored...)
			if got := rc.VirtualHosts[0].Routes[0].Action.(*DirectResponse).Body; got != tc.want {
				t.Errorf("Body = %q, want %q", got, tc.want)
			}
		})
	}
	for _, status := range []uint32{0, 199, 600} {
		faults := decodeFaults(t, RouteConfigurationType, routeConfig(respond(&routepb.DirectResponseAction{Status: status})))
		if len(faults) != 1 || faults[0].Path != "virtual_hosts[0].routes[0].direct_response.status" {
			t.Errorf("status %d: faults = %v, want one", status, faults)
		}
	}
}

func TestRedirectStatus(t *testing.T) {
	t.Parallel()
	for code, want := range map[routepb.RedirectAction_RedirectResponseCode]int{
		routepb.RedirectAction_MOVED_PERMANENTLY: 301, routepb.RedirectAction_FOUND: 302, routepb.RedirectAction_SEE_OTHER: 303,
		routepb.RedirectAction_TEMPORARY_REDIRECT: 307, routepb.RedirectAction_PERMANENT_REDIRECT: 308,
	} {
		route := &routepb.Route{Match: xdsmsg.Prefix("/"), Action: &routepb.Route_Redirect{Redirect: &routepb.RedirectAction{ResponseCode: code}}}
		got := decodeRoutes(t, route).Routes[0].Action
		xdstest.Equal(t, code.String(), Action(&Redirect{HTTPStatus: want, Code: codes.Unknown}), got)
	}
}

// RedirectAction, and what Envoy makes of port and query.
func TestRedirectLocation(t *testing.T) {
	t.Parallel()
	type action = routepb.RedirectAction
	scheme := func(s string) *action {
		return &action{SchemeRewriteSpecifier: &routepb.RedirectAction_SchemeRedirect{SchemeRedirect: s}}
	}
	path := func(p string) *action {
		return &action{PathRewriteSpecifier: &routepb.RedirectAction_PathRedirect{PathRedirect: p}}
	}
	stripped := func(a *action) *action { a.StripQuery = true; return a }
	toHTTPS := &action{SchemeRewriteSpecifier: &routepb.RedirectAction_HttpsRedirect{HttpsRedirect: true}}
	plain := matching.RPC{Method: "/a.B/m?q=1", Authority: "old:8080"}
	for _, tc := range []struct {
		given  string
		match  *routepb.RouteMatch
		action *action
		rpc    matching.RPC
		want   string
	}{
		{"nothing", xdsmsg.Prefix("/"), &action{}, plain, "http://old:8080/a.B/m?q=1"},
		{"https", xdsmsg.Prefix("/"), toHTTPS, plain, "https://old:8080/a.B/m?q=1"},
		{"https drops the port of http", xdsmsg.Prefix("/"), toHTTPS, matching.RPC{Method: "/m", Authority: "old:80"}, "https://old/m"},
		{"https keeps the port of https", xdsmsg.Prefix("/"), toHTTPS, matching.RPC{Method: "/m", Authority: "old:443"}, "https://old:443/m"},
		{"the same scheme keeps the port", xdsmsg.Prefix("/"), scheme("HTTP"), matching.RPC{Method: "/m", Authority: "old:80"}, "http://old:80/m"},
		{"http drops the port of https", xdsmsg.Prefix("/"), scheme("http"), matching.RPC{Method: "/m", Authority: "[::1]:443", Scheme: "https"}, "http://[::1]/m"},
		{"a port", xdsmsg.Prefix("/"), &action{PortRedirect: 90}, plain, "http://old:90/a.B/m?q=1"},
		{"a port for an IPv6 address", xdsmsg.Prefix("/"), &action{PortRedirect: 90}, matching.RPC{Method: "/m", Authority: "[::1]"}, "http://[::1]:90/m"},
		{"a host", xdsmsg.Prefix("/"), &action{HostRedirect: "new"}, plain, "http://new/a.B/m?q=1"},
		{"a host and a port", xdsmsg.Prefix("/"), &action{HostRedirect: "new", PortRedirect: 90}, plain, "http://new:90/a.B/m?q=1"},
		{"a path", xdsmsg.Prefix("/"), path("/x"), plain, "http://old:8080/x?q=1"},
		{"a path without query", xdsmsg.Prefix("/"), stripped(path("/x")), plain, "http://old:8080/x"},
		{"a path with its own query", xdsmsg.Prefix("/"), stripped(path("/x?y")), plain, "http://old:8080/x?y"},
		{"the query stripped", xdsmsg.Prefix("/"), stripped(&action{}), plain, "http://old:8080/a.B/m"},
		{"a prefix", xdsmsg.Prefix("/a.B"), &action{PathRewriteSpecifier: &routepb.RedirectAction_PrefixRewrite{PrefixRewrite: "/c.D"}}, plain, "http://old:8080/c.D/m?q=1"},
		{"a regex", xdsmsg.Prefix("/"), &action{PathRewriteSpecifier: &routepb.RedirectAction_RegexRewrite{RegexRewrite: substitute("/([^/]*)/", `/\1.v2/`)}}, plain, "http://old:8080/a.B.v2/m?q=1"},
	} {
		t.Run(tc.given, func(t *testing.T) {
			t.Parallel()
			vh := decodeRoutes(t, &routepb.Route{Match: tc.match, Action: &routepb.Route_Redirect{Redirect: tc.action}})
			route := vh.Route(tc.rpc)
			if got := route.Action.(*Redirect).Location(&route.Match, &tc.rpc); got != tc.want {
				t.Errorf("Location = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestRedirectFaults(t *testing.T) {
	t.Parallel()
	const at = "virtual_hosts[0].routes[0].redirect"
	redirect := &routepb.RedirectAction{
		ResponseCode: 9, PortRedirect: 65536, HostRedirect: "a b",
		SchemeRewriteSpecifier: &routepb.RedirectAction_SchemeRedirect{SchemeRedirect: "a\n"},
		PathRewriteSpecifier:   &routepb.RedirectAction_RegexRewrite{RegexRewrite: substitute("a", `\1`)},
	}
	checkFaults(t, RouteConfigurationType, routeConfig(&routepb.Route{
		Match: xdsmsg.Prefix("/"), Action: &routepb.Route_Redirect{Redirect: redirect},
	}), []fault{
		{at + ".regex_rewrite.substitution", `"\\1": the pattern has no group for \1`},
		{at + ".response_code", "is the unknown value 9"},
		{at + ".port_redirect", "must be a port, is 65536"},
		{at + ".scheme_redirect", `"a\n" has a blank or control character in it`},
		{at + ".host_redirect", `"a b" has a blank or control character in it`},
	})
}
