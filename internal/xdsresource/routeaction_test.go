package xdsresource

import (
	"fmt"
	"math/bits"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// gRFC A42, "Hash Policy".
func TestHash(t *testing.T) {
	t.Parallel()
	const channel = 0x1234
	x, y := xxhash.Sum64String("x"), xxhash.Sum64String("y")
	join := func(a, b uint64) uint64 { return bits.RotateLeft64(a, 1) ^ b }
	const (
		a, b      = `hash_policy{header{header_name:"a"}}`, `hash_policy{header{header_name:"b"}}`
		terminalA = `hash_policy{header{header_name:"a"} terminal:true}`
		byChannel = `hash_policy{filter_state{key:"io.grpc.channel_id"}}`
	)
	for _, tc := range []struct {
		given, policies string
		md              metadata.MD
		want            uint64
		none            bool
		ignored         int
	}{
		{given: "no policy", none: true},
		{given: "a header", policies: `hash_policy{header{header_name:"A"}}`, md: metadata.Pairs("a", "x"), want: x},
		{given: "a header with several values", policies: a, md: metadata.Pairs("a", "x", "a", "y"), want: xxhash.Sum64String("x,y")},
		{given: "a missing header", policies: a, none: true},
		{given: "a binary header", policies: `hash_policy{header{header_name:"a-bin"}}`, md: metadata.Pairs("a-bin", "x"), none: true},
		{given: "content-type", policies: `hash_policy{header{header_name:"content-type"}}`, want: xxhash.Sum64String("application/grpc")},
		{given: "a header rewritten", md: metadata.Pairs("a", "xyz"), want: x,
			policies: `hash_policy{header{header_name:"a" regex_rewrite{pattern{regex:"^(.).*"} substitution:"\\1"}}}`},
		{given: "the channel", policies: byChannel, want: channel},
		{given: "another filter state", policies: `hash_policy{filter_state{key:"x"}}`, none: true, ignored: 1},
		{given: "a cookie", policies: `hash_policy{cookie{}}`, none: true, ignored: 1},
		{given: "two headers", policies: a + b, md: metadata.Pairs("a", "x", "b", "y"), want: join(x, y)},
		{given: "the first one missing", policies: a + b, md: metadata.Pairs("b", "y"), want: y},
		{given: "terminal", policies: terminalA + b, md: metadata.Pairs("a", "x", "b", "y"), want: x},
		{given: "terminal, without a hash so far", policies: terminalA + b, md: metadata.Pairs("b", "y"), want: y},
		{given: "terminal, with a hash from before", policies: b + terminalA + byChannel, md: metadata.Pairs("b", "y"), want: y},
		{given: "terminal, of an unknown kind", md: metadata.Pairs("b", "y"), want: y, ignored: 1,
			policies: b + `hash_policy{cookie{} terminal:true}` + byChannel},
	} {
		xdstest.Parallel(t, tc.given, func(t *testing.T) {
			rc := mustDecodeRoutes(t, acting(t, tc.policies))
			if len(rc.Ignored) != tc.ignored {
				t.Errorf("Ignored = %v, want %d entries", rc.Ignored, tc.ignored)
			}
			rpc := matching.RPC{Method: "/", Metadata: func() metadata.MD { return tc.md }}
			got, ok := rc.VirtualHosts[0].Routes[0].Hash(&rpc, channel)
			if ok == tc.none || got != tc.want {
				t.Errorf("Hash = %x, %v, want %x, %v", got, ok, tc.want, !tc.none)
			}
		})
	}
	xdstest.Equal(t, "faults", firstRoute+".route.hash_policy[0].header.header_name: must not be empty; "+
		firstRoute+".route.hash_policy[1].header.regex_rewrite.pattern.regex: must not be empty",
		faultText(t, RouteConfigurationType,
			acting(t, `hash_policy{header{}} hash_policy{header{header_name:"a" regex_rewrite{pattern{}}}}`)))
}

func TestCodeSet(t *testing.T) {
	t.Parallel()
	s := NewCodeSet(codes.Internal, codes.Unauthenticated)
	for code := range codes.Code(40) {
		xdstest.Equal(t, fmt.Sprintf("Has(%v)", code),
			code == codes.Internal || code == codes.Unauthenticated, s.Has(code))
	}
}

// answering is a RouteConfiguration with a route that has another action than to forward.
func answering(t testing.TB, action string) *routepb.RouteConfiguration {
	t.Helper()
	return routeConfig(withText(t, &routepb.Route{Match: xdsmsg.Prefix("/")}, action))
}

// gRPC, "HTTP to gRPC Status Code Mapping".
func TestDirectResponse(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]codes.Code{
		200: codes.Unknown, 204: codes.Unknown, 302: codes.Unknown,
		400: codes.Internal, 401: codes.Unauthenticated, 403: codes.PermissionDenied, 404: codes.Unimplemented, 418: codes.Unknown,
		429: codes.Unavailable, 500: codes.Unknown, 502: codes.Unavailable, 503: codes.Unavailable, 504: codes.Unavailable, 599: codes.Unknown,
	} {
		config := answering(t, fmt.Sprintf(`direct_response{status:%d body{inline_string:"text"}}`, status))
		got := mustDecodeRoutes(t, config).VirtualHosts[0].Routes[0].Action
		xdstest.Equal(t, fmt.Sprintf("status %d", status), Action(&DirectResponse{HTTPStatus: status, Code: want, Body: "text"}), got)
	}
	for _, status := range []int{0, 199, 600} {
		xdstest.Equal(t, "faults", fmt.Sprintf("%s.direct_response.status: must be an HTTP status from 200 to 599, is %d", firstRoute, status),
			faultText(t, RouteConfigurationType, answering(t, fmt.Sprintf(`direct_response{status:%d}`, status))))
	}
}

func TestDirectResponseBody(t *testing.T) {
	t.Parallel()
	const at = firstRoute + ".direct_response.body"
	long := strings.Repeat("x", 4097)
	for _, tc := range []struct {
		given, body, limit, want string
		ignored                  []note
		faults                   string
	}{
		{given: "none"},
		{given: "bytes", body: `body{inline_bytes:"a\xffb"}`, want: "a\uFFFDb"},
		{given: "of a file", body: `body{filename:"/etc/passwd"}`,
			ignored: []note{{at, "the body must be inline_string or inline_bytes, is filename"}}},
		{given: "1024 bytes", body: `body{inline_string:"` + long[:1024] + `"}`, want: long[:1024]},
		{given: "4096 bytes", body: `body{inline_string:"` + long[1:] + `"}`, want: bounds.Text(long[1:], bounds.ErrorText)},
		{given: "4097 bytes", body: `body{inline_string:"` + long + `"}`,
			faults: at + ": has 4097 bytes, more than max_direct_response_body_size_bytes, 4096"},
		{given: "4097 bytes, which are allowed", body: `body{inline_string:"` + long + `"}`,
			limit: `max_direct_response_body_size_bytes{value:5000}`, want: bounds.Text(long, bounds.ErrorText)},
		{given: "none allowed", body: `body{inline_string:"x"}`, limit: `max_direct_response_body_size_bytes{}`,
			faults: at + ": has 1 bytes, more than max_direct_response_body_size_bytes, 0"},
	} {
		xdstest.Parallel(t, tc.given, func(t *testing.T) {
			config := withText(t, answering(t, `direct_response{status:503 `+tc.body+`}`), tc.limit)
			if xdstest.Equal(t, "faults", tc.faults, faultText(t, RouteConfigurationType, config)); tc.faults != "" {
				return
			}
			rc := mustDecodeRoutes(t, config)
			checkIgnored(t, rc.Ignored, tc.ignored...)
			xdstest.Equal(t, "Body", tc.want, rc.VirtualHosts[0].Routes[0].Action.(*DirectResponse).Body)
		})
	}
}

func TestRedirectStatus(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]int{
		"MOVED_PERMANENTLY": 301, "FOUND": 302, "SEE_OTHER": 303, "TEMPORARY_REDIRECT": 307, "PERMANENT_REDIRECT": 308,
	} {
		got := mustDecodeRoutes(t, answering(t, `redirect{response_code:`+code+`}`)).VirtualHosts[0].Routes[0].Action
		xdstest.Equal(t, code, Action(&Redirect{HTTPStatus: want, Code: codes.Unknown}), got)
	}
}

// RedirectAction, and what Envoy makes of port and query.
func TestRedirectLocation(t *testing.T) {
	t.Parallel()
	const https, prefix = `https_redirect:true `, `prefix:"/"`
	plain := matching.RPC{Method: "/a.B/m?q=1", Authority: "old:8080"}
	at := func(authority string) matching.RPC { return matching.RPC{Method: "/m", Authority: authority} }
	for _, tc := range []struct {
		given, match, action string
		rpc                  matching.RPC
		want                 string
	}{
		{"nothing", prefix, ``, plain, "http://old:8080/a.B/m?q=1"},
		{"https", prefix, https, plain, "https://old:8080/a.B/m?q=1"},
		{"https drops the port of http", prefix, https, at("old:80"), "https://old/m"},
		{"https keeps the port of https", prefix, https, at("old:443"), "https://old:443/m"},
		{"the same scheme keeps the port", prefix, `scheme_redirect:"HTTP"`, at("old:80"), "http://old:80/m"},
		{"http drops the port of https", prefix, `scheme_redirect:"http"`,
			matching.RPC{Method: "/m", Authority: "[::1]:443", Scheme: "https"}, "http://[::1]/m"},
		{"a port", prefix, `port_redirect:90`, plain, "http://old:90/a.B/m?q=1"},
		{"a port for an IPv6 address", prefix, `port_redirect:90`, at("[::1]"), "http://[::1]:90/m"},
		{"a host", prefix, `host_redirect:"new"`, plain, "http://new/a.B/m?q=1"},
		{"a host and a port", prefix, `host_redirect:"new" port_redirect:90`, plain, "http://new:90/a.B/m?q=1"},
		{"a path", prefix, `path_redirect:"/x"`, plain, "http://old:8080/x?q=1"},
		{"everything", prefix, https + `host_redirect:"new" port_redirect:8443 path_redirect:"/x"`, plain, "https://new:8443/x?q=1"},
		{"a path without query", prefix, `path_redirect:"/x" strip_query:true`, plain, "http://old:8080/x"},
		{"a path with its own query", prefix, `path_redirect:"/x?y" strip_query:true`, plain, "http://old:8080/x?y"},
		{"the query stripped", prefix, `strip_query:true`, plain, "http://old:8080/a.B/m"},
		{"a prefix", `prefix:"/a.B"`, `prefix_rewrite:"/c.D"`, plain, "http://old:8080/c.D/m?q=1"},
		{"a regex", prefix, `regex_rewrite{pattern{regex:"/([^/]*)/"} substitution:"/\\1.v2/"}`, plain, "http://old:8080/a.B.v2/m?q=1"},
	} {
		xdstest.Parallel(t, tc.given, func(t *testing.T) {
			vh := decodeRoutes(t, withText(t, &routepb.Route{}, `match{`+tc.match+`} redirect{`+tc.action+`}`))
			route := vh.Route(tc.rpc)
			xdstest.Equal(t, "Location", tc.want, route.Action.(*Redirect).Location(&route.Match, &tc.rpc))
		})
	}
}
