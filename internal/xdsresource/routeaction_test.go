package xdsresource

import (
	"fmt"
	"math"
	"math/bits"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	canarypb "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/omit_canary_hosts/v3"
	previoushostspb "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
)

func hashHeader(name string) *routepb.RouteAction_HashPolicy {
	return &routepb.RouteAction_HashPolicy{PolicySpecifier: &routepb.RouteAction_HashPolicy_Header_{
		Header: &routepb.RouteAction_HashPolicy_Header{HeaderName: name},
	}}
}

func hashState(key string) *routepb.RouteAction_HashPolicy {
	return &routepb.RouteAction_HashPolicy{PolicySpecifier: &routepb.RouteAction_HashPolicy_FilterState_{
		FilterState: &routepb.RouteAction_HashPolicy_FilterState{Key: key},
	}}
}

func hashCookie() *routepb.RouteAction_HashPolicy {
	return &routepb.RouteAction_HashPolicy{PolicySpecifier: &routepb.RouteAction_HashPolicy_Cookie_{}}
}

func terminal(p *routepb.RouteAction_HashPolicy) *routepb.RouteAction_HashPolicy {
	p.Terminal = true
	return p
}

// gRFC A42, "Hash Policy".
func TestHash(t *testing.T) {
	t.Parallel()
	const channel = 0x1234
	x, y := xxhash.Sum64String("x"), xxhash.Sum64String("y")
	join := func(a, b uint64) uint64 { return bits.RotateLeft64(a, 1) ^ b }
	rewritten := hashHeader("a")
	rewritten.GetHeader().RegexRewrite = substitute("^(.).*", `\1`)
	type policies = []*routepb.RouteAction_HashPolicy
	for _, tc := range []struct {
		given    string
		policies policies
		md       metadata.MD
		want     uint64
		none     bool
		ignored  int
	}{
		{given: "no policy", none: true},
		{given: "a header", policies: policies{hashHeader("A")}, md: metadata.Pairs("a", "x"), want: x},
		{given: "a header with several values", policies: policies{hashHeader("a")}, md: metadata.Pairs("a", "x", "a", "y"), want: xxhash.Sum64String("x,y")},
		{given: "a missing header", policies: policies{hashHeader("a")}, none: true},
		{given: "a binary header", policies: policies{hashHeader("a-bin")}, md: metadata.Pairs("a-bin", "x"), none: true},
		{given: "content-type", policies: policies{hashHeader("content-type")}, want: xxhash.Sum64String("application/grpc")},
		{given: "a header rewritten", policies: policies{rewritten}, md: metadata.Pairs("a", "xyz"), want: x},
		{given: "the channel", policies: policies{hashState("io.grpc.channel_id")}, want: channel},
		{given: "another filter state", policies: policies{hashState("x")}, none: true, ignored: 1},
		{given: "a cookie", policies: policies{hashCookie()}, none: true, ignored: 1},
		{given: "two headers", policies: policies{hashHeader("a"), hashHeader("b")}, md: metadata.Pairs("a", "x", "b", "y"), want: join(x, y)},
		{given: "the first one missing", policies: policies{hashHeader("a"), hashHeader("b")}, md: metadata.Pairs("b", "y"), want: y},
		{given: "terminal", policies: policies{terminal(hashHeader("a")), hashHeader("b")}, md: metadata.Pairs("a", "x", "b", "y"), want: x},
		{given: "terminal, without a hash so far", policies: policies{terminal(hashHeader("a")), hashHeader("b")}, md: metadata.Pairs("b", "y"), want: y},
		{given: "terminal, with a hash from before", policies: policies{hashHeader("b"), terminal(hashHeader("a")), hashState("io.grpc.channel_id")}, md: metadata.Pairs("b", "y"), want: y},
		{given: "terminal, of an unknown kind", policies: policies{hashHeader("b"), terminal(hashCookie()), hashState("io.grpc.channel_id")}, md: metadata.Pairs("b", "y"), want: y, ignored: 1},
	} {
		xdstest.Parallel(t, tc.given, func(t *testing.T) {
			rc := mustDecodeRoutes(t, routeConfig(routeWith(xdsmsg.Prefix("/"), func(a *routepb.RouteAction) { a.HashPolicy = tc.policies })))
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
}

func TestHashPolicyFaults(t *testing.T) {
	t.Parallel()
	broken := hashHeader("a")
	broken.GetHeader().RegexRewrite = substitute("", "")
	route := routeWith(xdsmsg.Prefix("/"), func(a *routepb.RouteAction) {
		a.HashPolicy = []*routepb.RouteAction_HashPolicy{hashHeader(""), broken}
	})
	const at = "virtual_hosts[0].routes[0].route.hash_policy"
	checkFaults(t, RouteConfigurationType, routeConfig(route), []fault{
		{at + "[0].header.header_name", "must not be empty"},
		{at + "[1].header.regex_rewrite.pattern.regex", "must not be empty"},
	})
}

func backoff(base, limit *durationpb.Duration) *routepb.RetryPolicy_RetryBackOff {
	return &routepb.RetryPolicy_RetryBackOff{BaseInterval: base, MaxInterval: limit}
}

func predicate(name string, config proto.Message) *routepb.RetryPolicy_RetryHostPredicate {
	return &routepb.RetryPolicy_RetryHostPredicate{
		Name: name, ConfigType: &routepb.RetryPolicy_RetryHostPredicate_TypedConfig{TypedConfig: xdsmsg.Any(config)},
	}
}

// gRFC A44, "Converting Envoy RetryPolicy to gRPC RetryPolicy", and what Envoy has beyond it.
func TestRetryPolicy(t *testing.T) {
	t.Parallel()
	ms := func(n float64) *durationpb.Duration {
		return durationpb.New(time.Duration(n * float64(time.Millisecond)))
	}
	unavailable := NewCodeSet(codes.Unavailable)
	policy := func(codes CodeSet, attempts int, base, limit time.Duration) *RetryPolicy {
		return &RetryPolicy{Codes: codes, MaxAttempts: attempts, BaseBackoff: base, MaxBackoff: limit}
	}
	// beyond is the policy by default with what Envoy has beyond gRFC A44.
	beyond := func(edit func(p *RetryPolicy)) *RetryPolicy {
		p := policy(unavailable, 2, 25*time.Millisecond, 250*time.Millisecond)
		edit(p)
		return p
	}
	checkEach(t, "Retry", func(t *testing.T, pb *routepb.RetryPolicy) *RetryPolicy {
		route := routeWith(xdsmsg.Prefix("/"), func(a *routepb.RouteAction) { a.RetryPolicy = pb })
		return decodeRoutes(t, route).Routes[0].Retry
	}, rows[*routepb.RetryPolicy, *RetryPolicy]{
		{"the defaults", &routepb.RetryPolicy{RetryOn: "unavailable"}, policy(unavailable, 2, 25*time.Millisecond, 250*time.Millisecond)},
		{"all codes, and others", &routepb.RetryPolicy{RetryOn: "retriable-4xx, Cancelled,deadline-exceeded,internal,,resource-exhausted , unavailable,refused-stream"},
			policy(NewCodeSet(codes.Canceled, codes.DeadlineExceeded, codes.Internal, codes.ResourceExhausted, codes.Unavailable), 2, 25*time.Millisecond, 250*time.Millisecond)},
		{"no code", &routepb.RetryPolicy{RetryOn: "retriable-4xx"}, nil},
		{"nothing", &routepb.RetryPolicy{}, nil},
		{"num_retries", &routepb.RetryPolicy{RetryOn: "unavailable", NumRetries: wrapperspb.UInt32(3)}, policy(unavailable, 4, 25*time.Millisecond, 250*time.Millisecond)},
		{"num_retries above 4", &routepb.RetryPolicy{RetryOn: "unavailable", NumRetries: wrapperspb.UInt32(1 << 31)}, policy(unavailable, 5, 25*time.Millisecond, 250*time.Millisecond)},
		{"base_interval alone", &routepb.RetryPolicy{RetryOn: "unavailable", RetryBackOff: backoff(ms(10), nil)}, policy(unavailable, 2, 10*time.Millisecond, 100*time.Millisecond)},
		{"both intervals", &routepb.RetryPolicy{RetryOn: "unavailable", RetryBackOff: backoff(ms(10), ms(10))}, policy(unavailable, 2, 10*time.Millisecond, 10*time.Millisecond)},
		{"intervals below 1 ms", &routepb.RetryPolicy{RetryOn: "unavailable", RetryBackOff: backoff(ms(.5), ms(.7))}, policy(unavailable, 2, time.Millisecond, time.Millisecond)},
		{"an interval that is endless", &routepb.RetryPolicy{RetryOn: "unavailable", RetryBackOff: backoff(&durationpb.Duration{Seconds: 300_000_000_000}, nil)},
			policy(unavailable, 2, 1<<63-1, (1<<63-1)/10*10)},
		{"what is ignored", &routepb.RetryPolicy{RetryOn: "unavailable", RetriableStatusCodes: []uint32{503}},
			policy(unavailable, 2, 25*time.Millisecond, 250*time.Millisecond)},
		{"no response", &routepb.RetryPolicy{RetryOn: "unavailable,reset"}, beyond(func(p *RetryPolicy) { p.NoResponse = true })},
		{"5xx alone", &routepb.RetryPolicy{RetryOn: "5xx"}, beyond(func(p *RetryPolicy) { p.Codes, p.NoResponse = 0, true })},
		{"gateway-error alone", &routepb.RetryPolicy{RetryOn: "gateway-error"}, beyond(func(p *RetryPolicy) { p.Codes, p.NoResponse = 0, true })},
		{"connect-failure alone", &routepb.RetryPolicy{RetryOn: "connect-failure"}, beyond(func(p *RetryPolicy) { p.Codes, p.ConnectFailure = 0, true })},
		{"retriable-headers", &routepb.RetryPolicy{RetryOn: "retriable-headers", RetriableHeaders: []*routepb.HeaderMatcher{present("Again", true)}},
			beyond(func(p *RetryPolicy) {
				p.Codes, p.RetriableHeaders = 0, []matching.Header{{Name: "again", Kind: matching.HeaderPresent, Present: true}}
			})},
		{"retriable-headers without headers", &routepb.RetryPolicy{RetryOn: "retriable-headers"}, nil},
		{"headers without retriable-headers", &routepb.RetryPolicy{RetryOn: "unavailable", RetriableHeaders: []*routepb.HeaderMatcher{present("again", true)}},
			beyond(func(*RetryPolicy) {})},
		{"retriable_request_headers", &routepb.RetryPolicy{RetryOn: "unavailable", RetriableRequestHeaders: []*routepb.HeaderMatcher{present("idempotent", true)}},
			beyond(func(p *RetryPolicy) {
				p.RequestHeaders = []matching.Header{{Name: "idempotent", Kind: matching.HeaderPresent, Present: true}}
			})},
		{"rate_limited_retry_back_off", &routepb.RetryPolicy{RetryOn: "unavailable", RateLimitedRetryBackOff: &routepb.RetryPolicy_RateLimitedRetryBackOff{
			ResetHeaders: []*routepb.RetryPolicy_ResetHeader{{Name: "Retry-After"}, {Name: "reset", Format: routepb.RetryPolicy_UNIX_TIMESTAMP}},
		}}, beyond(func(p *RetryPolicy) {
			p.ResetHeaders, p.MaxReset = []ResetHeader{{Name: "retry-after"}, {Name: "reset", Timestamp: true}}, 300*time.Second
		})},
		{"max_interval", &routepb.RetryPolicy{RetryOn: "unavailable", RateLimitedRetryBackOff: &routepb.RetryPolicy_RateLimitedRetryBackOff{
			ResetHeaders: []*routepb.RetryPolicy_ResetHeader{{Name: "a"}}, MaxInterval: ms(5),
		}}, beyond(func(p *RetryPolicy) { p.ResetHeaders, p.MaxReset = []ResetHeader{{Name: "a"}}, 5*time.Millisecond })},
		{"previous_hosts", &routepb.RetryPolicy{RetryOn: "unavailable", RetryHostPredicate: []*routepb.RetryPolicy_RetryHostPredicate{predicate("x", new(previoushostspb.PreviousHostsPredicate))}},
			beyond(func(p *RetryPolicy) { p.PreviousHosts = 1 })},
		{"previous_hosts by its name", &routepb.RetryPolicy{RetryOn: "unavailable", HostSelectionRetryMaxAttempts: 5, RetryHostPredicate: []*routepb.RetryPolicy_RetryHostPredicate{{Name: "envoy.retry_host_predicates.previous_hosts"}}},
			beyond(func(p *RetryPolicy) { p.PreviousHosts = 5 })},
		{"host_selection_retry_max_attempts without end", &routepb.RetryPolicy{RetryOn: "unavailable", HostSelectionRetryMaxAttempts: math.MaxInt64, RetryHostPredicate: []*routepb.RetryPolicy_RetryHostPredicate{predicate("x", new(previoushostspb.PreviousHostsPredicate))}},
			beyond(func(p *RetryPolicy) { p.PreviousHosts = 100 })},
		{"another predicate", &routepb.RetryPolicy{RetryOn: "unavailable", HostSelectionRetryMaxAttempts: 5, RetryHostPredicate: []*routepb.RetryPolicy_RetryHostPredicate{predicate("envoy.retry_host_predicates.previous_hosts", new(canarypb.OmitCanaryHostsPredicate))}},
			beyond(func(*RetryPolicy) {})},
		{"timeouts", &routepb.RetryPolicy{RetryOn: "unavailable", PerTryTimeout: ms(1), PerTryIdleTimeout: ms(2)},
			beyond(func(p *RetryPolicy) { p.PerTryTimeout, p.PerTryIdleTimeout = time.Millisecond, 2*time.Millisecond })},
		{"timeouts, and no retries", &routepb.RetryPolicy{NumRetries: wrapperspb.UInt32(4), PerTryTimeout: ms(1)},
			beyond(func(p *RetryPolicy) { p.Codes, p.MaxAttempts, p.PerTryTimeout = 0, 1, time.Millisecond })},
		{"timeouts of 0", &routepb.RetryPolicy{PerTryTimeout: ms(0), PerTryIdleTimeout: ms(0)}, nil},
	})
}

// gRFC A44, "Workflow of xDS Retry": the policy of the route, else that of the
// virtual host.
func TestRetryPolicyOfTheVirtualHost(t *testing.T) {
	t.Parallel()
	config := routeConfig(
		xdsmsg.PrefixRoute("/1", "a"),
		routeWith(xdsmsg.Prefix("/2"), func(a *routepb.RouteAction) { a.RetryPolicy = &routepb.RetryPolicy{RetryOn: "internal"} }),
		routeWith(xdsmsg.Prefix("/3"), func(a *routepb.RouteAction) { a.RetryPolicy = &routepb.RetryPolicy{} }),
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
		note{"virtual_hosts[0].retry_policy.retry_on", `"retriable-4xx,unavailable,refused-stream": this client does not support 2 of the conditions`})
}

// TestHedgePolicy: Envoy, HedgePolicy: "For this to have effect, you must have a RetryPolicy that retries
// at least one error code". Then per_try_timeout is not a bound either (gRFC A44, "Supporting
// per_try_timeout").
func TestHedgePolicy(t *testing.T) {
	t.Parallel()
	on, off := &routepb.HedgePolicy{HedgeOnPerTryTimeout: true}, &routepb.HedgePolicy{}
	timeout := &routepb.RetryPolicy{PerTryTimeout: durationpb.New(time.Millisecond)}
	retry := &routepb.RetryPolicy{RetryOn: "unavailable", PerTryTimeout: durationpb.New(time.Millisecond)}
	plain := &routepb.RetryPolicy{RetryOn: "unavailable"}
	for _, test := range []struct {
		name        string
		policy      *routepb.RetryPolicy
		host, route *routepb.HedgePolicy
		want        string
	}{
		{"no hedging", retry, nil, nil, "1ms"},
		{"another policy for hedging", retry, nil, off, "1ms"},
		{"of the route", retry, nil, on, "1ms hedged"},
		{"of the virtual host", retry, on, nil, "1ms hedged"},
		{"the route's counts", retry, on, off, "1ms"},
		{"nothing is retried", timeout, nil, on, "none"},
		{"no timeout", plain, nil, on, "0s"},
		{"the other timeout", &routepb.RetryPolicy{RetryOn: "unavailable", PerTryIdleTimeout: durationpb.New(time.Second)}, nil, on, "0s hedged"},
	} {
		for _, level := range []string{"route", "virtual host"} {
			config := routeConfig(routeWith(xdsmsg.Prefix("/"), func(a *routepb.RouteAction) { a.HedgePolicy = test.route }))
			config.VirtualHosts[0].HedgePolicy = test.host
			if level == "route" {
				config.VirtualHosts[0].Routes[0].GetRoute().RetryPolicy = test.policy
			} else {
				config.VirtualHosts[0].RetryPolicy = test.policy
			}
			got := "none"
			if p := mustDecodeRoutes(t, config).VirtualHosts[0].Routes[0].Retry; p != nil {
				if got = p.PerTryTimeout.String(); p.Hedging != nil && p.Hedging.OnPerTryTimeout {
					got += " hedged"
				}
			}
			xdstest.Equal(t, fmt.Sprintf("%s, policy of the %s", test.name, level), test.want, got)
		}
	}
	config := routeConfig(routeWith(xdsmsg.Prefix("/"), func(a *routepb.RouteAction) {
		a.HedgePolicy = &routepb.HedgePolicy{HedgeOnPerTryTimeout: true, InitialRequests: wrapperspb.UInt32(2), AdditionalRequestChance: &typepb.FractionalPercent{Numerator: 1}}
	}))
	const ignored = "this client does not act on the field"
	checkIgnored(t, ignoredOf(t, RouteConfigurationType, config), // Envoy does not implement them either.
		note{firstRoute + ".route.hedge_policy.initial_requests", ignored},
		note{firstRoute + ".route.hedge_policy.additional_request_chance", ignored})
}

func TestOtherRetryHostPredicates(t *testing.T) {
	t.Parallel()
	config := routeConfig(xdsmsg.PrefixRoute("/", "a"))
	config.VirtualHosts[0].RetryPolicy = &routepb.RetryPolicy{RetryOn: "unavailable", RetryHostPredicate: []*routepb.RetryPolicy_RetryHostPredicate{
		predicate("previous", new(previoushostspb.PreviousHostsPredicate)), predicate("canary", new(canarypb.OmitCanaryHostsPredicate)),
	}}
	checkIgnored(t, mustDecodeRoutes(t, config).Ignored,
		note{"virtual_hosts[0].retry_policy.retry_host_predicate[1]", `"canary": this client knows the predicate previous_hosts only`})
}

func TestRetryPolicyFaults(t *testing.T) {
	t.Parallel()
	const at = "virtual_hosts[0].routes[0].route.retry_policy"
	second, minute := durationpb.New(time.Second), durationpb.New(time.Minute)
	checkEach(t, "faults", func(t *testing.T, pb *routepb.RetryPolicy) []fault {
		route := routeWith(xdsmsg.Prefix("/"), func(a *routepb.RouteAction) { a.RetryPolicy = pb })
		return decodeFaults(t, RouteConfigurationType, routeConfig(route))
	}, rows[*routepb.RetryPolicy, []fault]{
		{"no retries", &routepb.RetryPolicy{NumRetries: wrapperspb.UInt32(0)}, []fault{{at + ".num_retries", "must be at least 1"}}},
		{"no base_interval", &routepb.RetryPolicy{RetryBackOff: backoff(nil, second)}, []fault{{at + ".retry_back_off.base_interval", "must be set"}}},
		{"intervals of 0", &routepb.RetryPolicy{RetryBackOff: backoff(durationpb.New(0), durationpb.New(0))},
			[]fault{{at + ".retry_back_off.base_interval", "must be above 0"}, {at + ".retry_back_off.max_interval", "must be above 0"}}},
		{"negative intervals", &routepb.RetryPolicy{RetryBackOff: backoff(durationpb.New(-1), second)}, []fault{{at + ".retry_back_off.base_interval", "is negative: -1ns"}}},
		{"negative timeouts", &routepb.RetryPolicy{PerTryTimeout: durationpb.New(-1), PerTryIdleTimeout: durationpb.New(-2)},
			[]fault{{at + ".per_try_timeout", "is negative: -1ns"}, {at + ".per_try_idle_timeout", "is negative: -2ns"}}},
		{"headers that match nothing", &routepb.RetryPolicy{RetryOn: "retriable-headers", RetriableHeaders: []*routepb.HeaderMatcher{{Name: "a"}}, RetriableRequestHeaders: []*routepb.HeaderMatcher{present("", true)}},
			[]fault{{at + ".retriable_headers[0]", "header_match_specifier must be set to a kind of match that this client knows"}, {at + ".retriable_request_headers[0].name", "must not be empty"}}},
		{"no reset header", &routepb.RetryPolicy{RateLimitedRetryBackOff: &routepb.RetryPolicy_RateLimitedRetryBackOff{MaxInterval: durationpb.New(0)}},
			[]fault{{at + ".rate_limited_retry_back_off.reset_headers", "must not be empty"}, {at + ".rate_limited_retry_back_off.max_interval", "must be above 0"}}},
		{"an unknown format", &routepb.RetryPolicy{RateLimitedRetryBackOff: &routepb.RetryPolicy_RateLimitedRetryBackOff{ResetHeaders: []*routepb.RetryPolicy_ResetHeader{{Name: "a", Format: 7}}}},
			[]fault{{at + ".rate_limited_retry_back_off.reset_headers[0].format", "must be SECONDS or UNIX_TIMESTAMP, is 7"}}},
		{"upside down", &routepb.RetryPolicy{RetryBackOff: backoff(minute, second)}, []fault{{at + ".retry_back_off.max_interval", "1s is below base_interval, 1m0s"}}},
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
		xdstest.Parallel(t, tc.given, func(t *testing.T) {
			config := routeConfig(respond(&routepb.DirectResponseAction{Status: 503, Body: tc.body}))
			config.MaxDirectResponseBodySizeBytes = tc.limit
			if checkFaults(t, RouteConfigurationType, config, tc.faults); tc.faults != nil {
				return
			}
			rc := mustDecodeRoutes(t, config)
			checkIgnored(t, rc.Ignored, tc.ignored...)
			xdstest.Equal(t, "Body",
				tc.want, rc.VirtualHosts[0].Routes[0].Action.(*DirectResponse).Body)
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
		{"everything", xdsmsg.Prefix("/"), &action{
			SchemeRewriteSpecifier: toHTTPS.SchemeRewriteSpecifier, HostRedirect: "new", PortRedirect: 8443,
			PathRewriteSpecifier: &routepb.RedirectAction_PathRedirect{PathRedirect: "/x"},
		}, plain, "https://new:8443/x?q=1"},
		{"a path without query", xdsmsg.Prefix("/"), stripped(path("/x")), plain, "http://old:8080/x"},
		{"a path with its own query", xdsmsg.Prefix("/"), stripped(path("/x?y")), plain, "http://old:8080/x?y"},
		{"the query stripped", xdsmsg.Prefix("/"), stripped(&action{}), plain, "http://old:8080/a.B/m"},
		{"a prefix", xdsmsg.Prefix("/a.B"), &action{PathRewriteSpecifier: &routepb.RedirectAction_PrefixRewrite{PrefixRewrite: "/c.D"}}, plain, "http://old:8080/c.D/m?q=1"},
		{"a regex", xdsmsg.Prefix("/"), &action{PathRewriteSpecifier: &routepb.RedirectAction_RegexRewrite{RegexRewrite: substitute("/([^/]*)/", `/\1.v2/`)}}, plain, "http://old:8080/a.B.v2/m?q=1"},
	} {
		xdstest.Parallel(t, tc.given, func(t *testing.T) {
			vh := decodeRoutes(t, &routepb.Route{Match: tc.match, Action: &routepb.Route_Redirect{Redirect: tc.action}})
			route := vh.Route(tc.rpc)
			xdstest.Equal(t, "Location",
				tc.want, route.Action.(*Redirect).Location(&route.Match, &tc.rpc))
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
