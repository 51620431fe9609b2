package xdsresource

import (
	"fmt"
	"math/bits"
	"strings"
	"testing"
	"time"

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

// gRFC A44, "Converting Envoy RetryPolicy to gRPC RetryPolicy", and what Envoy has beyond it.
func TestRetryPolicy(t *testing.T) {
	t.Parallel()
	edited := func(edit func(p *RetryPolicy)) *RetryPolicy {
		p := &RetryPolicy{
			Codes: NewCodeSet(codes.Unavailable), MaxAttempts: 2, BaseBackoff: 25 * time.Millisecond, MaxBackoff: 250 * time.Millisecond,
		}
		edit(p)
		return p
	}
	attempts := func(n int) *RetryPolicy { return edited(func(p *RetryPolicy) { p.MaxAttempts = n }) }
	backoff := func(base, limit time.Duration) *RetryPolicy {
		return edited(func(p *RetryPolicy) { p.BaseBackoff, p.MaxBackoff = base, limit })
	}
	previous := func(n int) *RetryPolicy { return edited(func(p *RetryPolicy) { p.PreviousHosts = n }) }
	noResponse := edited(func(p *RetryPolicy) { p.Codes, p.NoResponse = 0, true })
	byDefault := edited(func(*RetryPolicy) {})
	const on = `retry_on:"unavailable"`
	const again = `retriable_headers{name:"Again" present_match:true}`
	checkEach(t, "Retry", func(t *testing.T, fields string) *RetryPolicy {
		return mustDecodeRoutes(t, acting(t, `retry_policy{`+fields+`}`)).VirtualHosts[0].Routes[0].Retry
	}, rows[string, *RetryPolicy]{
		{"the defaults", on, byDefault},
		{"all codes, and others",
			`retry_on:"retriable-4xx, Cancelled,deadline-exceeded,internal,,resource-exhausted , unavailable,refused-stream"`,
			edited(func(p *RetryPolicy) {
				p.Codes = NewCodeSet(codes.Canceled, codes.DeadlineExceeded, codes.Internal, codes.ResourceExhausted, codes.Unavailable)
			})},
		{"no code", `retry_on:"retriable-4xx"`, nil},
		{"nothing", ``, nil},
		{"num_retries", on + `num_retries{value:3}`, attempts(4)},
		{"num_retries above 4", on + `num_retries{value:2147483648}`, attempts(5)},
		{"base_interval alone", on + `retry_back_off{base_interval{nanos:10000000}}`, backoff(10*time.Millisecond, 100*time.Millisecond)},
		{"both intervals", on + `retry_back_off{base_interval{nanos:10000000} max_interval{nanos:10000000}}`,
			backoff(10*time.Millisecond, 10*time.Millisecond)},
		{"intervals below 1 ms", on + `retry_back_off{base_interval{nanos:500000} max_interval{nanos:700000}}`,
			backoff(time.Millisecond, time.Millisecond)},
		{"an interval that is endless", on + `retry_back_off{base_interval{seconds:300000000000}}`,
			backoff(1<<63-1, (1<<63-1)/10*10)},
		{"what is ignored", on + `retriable_status_codes:503`, byDefault},
		{"no response", `retry_on:"unavailable,reset"`, edited(func(p *RetryPolicy) { p.NoResponse = true })},
		{"5xx alone", `retry_on:"5xx"`, noResponse},
		{"gateway-error alone", `retry_on:"gateway-error"`, noResponse},
		{"connect-failure alone", `retry_on:"connect-failure"`,
			edited(func(p *RetryPolicy) { p.Codes, p.ConnectFailure = 0, true })},
		{"retriable-headers", `retry_on:"retriable-headers"` + again, edited(func(p *RetryPolicy) {
			p.Codes, p.RetriableHeaders = 0, []matching.Header{{Name: "again", Kind: matching.HeaderPresent, Present: true}}
		})},
		{"retriable-headers without headers", `retry_on:"retriable-headers"`, nil},
		{"headers without retriable-headers", on + again, byDefault},
		{"retriable_request_headers", on + `retriable_request_headers{name:"idempotent" present_match:true}`, edited(func(p *RetryPolicy) {
			p.RequestHeaders = []matching.Header{{Name: "idempotent", Kind: matching.HeaderPresent, Present: true}}
		})},
		{"rate_limited_retry_back_off",
			on + `rate_limited_retry_back_off{reset_headers{name:"Retry-After"} reset_headers{name:"reset" format:UNIX_TIMESTAMP}}`,
			edited(func(p *RetryPolicy) {
				p.ResetHeaders, p.MaxReset = []ResetHeader{{Name: "retry-after"}, {Name: "reset", Timestamp: true}}, 300*time.Second
			})},
		{"max_interval", on + `rate_limited_retry_back_off{reset_headers{name:"a"} max_interval{nanos:5000000}}`,
			edited(func(p *RetryPolicy) { p.ResetHeaders, p.MaxReset = []ResetHeader{{Name: "a"}}, 5*time.Millisecond })},
		{"previous_hosts", on + `retry_host_predicate{name:"x" typed_config{[PreviousHostsPredicate]{}}}`, previous(1)},
		{"previous_hosts by its name",
			on + `host_selection_retry_max_attempts:5 retry_host_predicate{name:"envoy.retry_host_predicates.previous_hosts"}`, previous(5)},
		{"host_selection_retry_max_attempts without end", on + `host_selection_retry_max_attempts:9223372036854775807
			retry_host_predicate{name:"x" typed_config{[PreviousHostsPredicate]{}}}`, previous(100)},
		{"another predicate", on + `host_selection_retry_max_attempts:5 retry_host_predicate{
			name:"envoy.retry_host_predicates.previous_hosts" typed_config{[OmitCanaryHostsPredicate]{}}}`, byDefault},
		{"timeouts", on + `per_try_timeout{nanos:1000000} per_try_idle_timeout{nanos:2000000}`,
			edited(func(p *RetryPolicy) { p.PerTryTimeout, p.PerTryIdleTimeout = time.Millisecond, 2*time.Millisecond })},
		{"timeouts, and no retries", `num_retries{value:4} per_try_timeout{nanos:1000000}`,
			edited(func(p *RetryPolicy) { p.Codes, p.MaxAttempts, p.PerTryTimeout = 0, 1, time.Millisecond })},
		{"timeouts of 0", `per_try_timeout{} per_try_idle_timeout{}`, nil},
	})
}

// gRFC A44, "Workflow of xDS Retry": the policy of the route, else that of the
// virtual host.
func TestRetryPolicyOfTheVirtualHost(t *testing.T) {
	t.Parallel()
	config := routeConfig(
		xdsmsg.PrefixRoute("/1", "a"),
		withText(t, xdsmsg.PrefixRoute("/2", "a"), `route{retry_policy{retry_on:"internal"}}`),
		withText(t, xdsmsg.PrefixRoute("/3", "a"), `route{retry_policy{}}`),
		&routepb.Route{Match: xdsmsg.Prefix("/4")},
	)
	config.VirtualHosts[0].RetryPolicy = &routepb.RetryPolicy{RetryOn: "unavailable"}
	config.VirtualHosts = append(config.VirtualHosts, &routepb.VirtualHost{Domains: []string{"x"}, Routes: []*routepb.Route{xdsmsg.PrefixRoute("/", "a")}})
	hosts := mustDecodeRoutes(t, config).VirtualHosts
	routes := append(hosts[0].Routes, hosts[1].Routes...)
	for i, want := range []CodeSet{NewCodeSet(codes.Unavailable), NewCodeSet(codes.Internal), 0, 0, 0} {
		var got CodeSet
		if routes[i].Retry != nil {
			got = routes[i].Retry.Codes
		}
		xdstest.Equal(t, fmt.Sprintf("codes that route %d retries", i), want, got)
	}
}

func TestUnsupportedRetryConditions(t *testing.T) {
	t.Parallel()
	config := routeConfig(xdsmsg.PrefixRoute("/", "a"))
	config.VirtualHosts[0].RetryPolicy = &routepb.RetryPolicy{RetryOn: "retriable-4xx,unavailable,refused-stream"}
	checkIgnored(t, mustDecodeRoutes(t, config).Ignored,
		note{"virtual_hosts[0].retry_policy.retry_on", `this client does not support "retriable-4xx"`})
}

// TestHedgePolicy: Envoy, HedgePolicy: "For this to have effect, you must have a RetryPolicy that retries
// at least one error code". Then per_try_timeout is not a bound either (gRFC A44, "Supporting
// per_try_timeout").
func TestHedgePolicy(t *testing.T) {
	t.Parallel()
	const on, off = `hedge_policy{hedge_on_per_try_timeout:true}`, `hedge_policy{}`
	const retry = `retry_policy{retry_on:"unavailable" per_try_timeout{nanos:1000000}}`
	for _, test := range []struct{ name, policy, host, route, want string }{
		{"no hedging", retry, ``, ``, "1ms"},
		{"another policy for hedging", retry, ``, off, "1ms"},
		{"of the route", retry, ``, on, "1ms hedged"},
		{"of the virtual host", retry, on, ``, "1ms hedged"},
		{"the route's counts", retry, on, off, "1ms"},
		{"nothing is retried", `retry_policy{per_try_timeout{nanos:1000000}}`, ``, on, "none"},
		{"no timeout", `retry_policy{retry_on:"unavailable"}`, ``, on, "0s"},
		{"the other timeout", `retry_policy{retry_on:"unavailable" per_try_idle_timeout{seconds:1}}`, ``, on, "0s hedged"},
	} {
		ofRoute, ofHost := acting(t, test.route+test.policy), acting(t, test.route)
		withText(t, ofRoute.VirtualHosts[0], test.host)
		withText(t, ofHost.VirtualHosts[0], test.host+test.policy)
		for level, config := range map[string]*routepb.RouteConfiguration{"route": ofRoute, "virtual host": ofHost} {
			got := "none"
			if p := mustDecodeRoutes(t, config).VirtualHosts[0].Routes[0].Retry; p != nil {
				if got = p.PerTryTimeout.String(); p.Hedges {
					got += " hedged"
				}
			}
			xdstest.Equal(t, fmt.Sprintf("%s, policy of the %s", test.name, level), test.want, got)
		}
	}
	config := acting(t, `hedge_policy{hedge_on_per_try_timeout:true initial_requests{value:2} additional_request_chance{numerator:1}}`)
	checkIgnored(t, ignoredOf(t, RouteConfigurationType, config), // Envoy does not implement them either.
		note{firstRoute + ".route.hedge_policy.initial_requests", notActedOn},
		note{firstRoute + ".route.hedge_policy.additional_request_chance", notActedOn})
}

func TestOtherRetryHostPredicates(t *testing.T) {
	t.Parallel()
	config := acting(t, `retry_policy{retry_on:"unavailable"
		retry_host_predicate{name:"previous" typed_config{[PreviousHostsPredicate]{}}}
		retry_host_predicate{name:"canary" typed_config{[OmitCanaryHostsPredicate]{}}}}`)
	checkIgnored(t, mustDecodeRoutes(t, config).Ignored,
		note{firstRoute + ".route.retry_policy.retry_host_predicate[1]", `"canary": this client knows the predicate previous_hosts only`})
}

func TestRetryPolicyFaults(t *testing.T) {
	t.Parallel()
	retrying := func(t testing.TB, fields string) *routepb.RouteConfiguration {
		return acting(t, `retry_policy{`+fields+`}`)
	}
	checkTextFaults(t, RouteConfigurationType, firstRoute+".route.retry_policy", retrying, []textCase{
		{"no retries", `num_retries{}`, "@.num_retries: must be at least 1"},
		{"no base_interval", `retry_back_off{max_interval{seconds:1}}`, "@.retry_back_off.base_interval: must be set"},
		{"intervals of 0", `retry_back_off{base_interval{} max_interval{}}`,
			"@.retry_back_off.base_interval: must be above 0; @.retry_back_off.max_interval: must be above 0"},
		{"negative intervals", `retry_back_off{base_interval{nanos:-1} max_interval{seconds:1}}`,
			"@.retry_back_off.base_interval: is negative: -1ns"},
		{"negative timeouts", `per_try_timeout{nanos:-1} per_try_idle_timeout{nanos:-2}`,
			"@.per_try_timeout: is negative: -1ns; @.per_try_idle_timeout: is negative: -2ns"},
		{"headers that match nothing",
			`retry_on:"retriable-headers" retriable_headers{name:"a"} retriable_request_headers{present_match:true}`,
			"@.retriable_headers[0]: header_match_specifier must be set to a kind of match that this client knows; " +
				"@.retriable_request_headers[0].name: must not be empty"},
		{"no reset header", `rate_limited_retry_back_off{max_interval{}}`,
			"@.rate_limited_retry_back_off.reset_headers: must not be empty; " +
				"@.rate_limited_retry_back_off.max_interval: must be above 0"},
		{"an unknown format", `rate_limited_retry_back_off{reset_headers{name:"a" format:7}}`,
			"@.rate_limited_retry_back_off.reset_headers[0].format: must be SECONDS or UNIX_TIMESTAMP, is 7"},
		{"upside down", `retry_back_off{base_interval{seconds:60} max_interval{seconds:1}}`,
			"@.retry_back_off.max_interval: 1s is below base_interval, 1m0s"},
	})
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
	checkTextFaults(t, RouteConfigurationType, firstRoute+".redirect", answering, []textCase{{"faults", `redirect{
		response_code:9 port_redirect:65536 host_redirect:"a b" scheme_redirect:"a\n"
		regex_rewrite{pattern{regex:"a"} substitution:"\\1"}}`,
		`@.regex_rewrite.substitution: "\\1": the pattern has no group for \1; @.response_code: is the unknown value 9; ` +
			`@.port_redirect: must be a port, is 65536; @.scheme_redirect: "a\n" has a blank or control character in it; ` +
			`@.host_redirect: "a b" has a blank or control character in it`}})
}
