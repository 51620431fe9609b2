package xdsresource

import (
	"testing"
	"time"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/xdsmsg"
)

func backoff(base, limit *durationpb.Duration) *routepb.RetryPolicy_RetryBackOff {
	return &routepb.RetryPolicy_RetryBackOff{BaseInterval: base, MaxInterval: limit}
}

// gRFC A44, "Converting Envoy RetryPolicy to gRPC RetryPolicy".
func TestRetryPolicy(t *testing.T) {
	t.Parallel()
	ms := func(n float64) *durationpb.Duration {
		return durationpb.New(time.Duration(n * float64(time.Millisecond)))
	}
	unavailable := NewCodeSet(codes.Unavailable)
	checkEach(t, "Retry", func(t *testing.T, pb *routepb.RetryPolicy) *RetryPolicy {
		route := routeWith(xdsmsg.Prefix("/"), func(a *routepb.RouteAction) { a.RetryPolicy = pb })
		return decodeRoutes(t, route).Routes[0].Retry
	}, rows[*routepb.RetryPolicy, *RetryPolicy]{
		{"the defaults", &routepb.RetryPolicy{RetryOn: "unavailable"}, &RetryPolicy{unavailable, 2, 25 * time.Millisecond, 250 * time.Millisecond}},
		{"all codes, and others", &routepb.RetryPolicy{RetryOn: "5xx, Cancelled,deadline-exceeded,internal,,resource-exhausted , unavailable,gateway-error"},
			&RetryPolicy{NewCodeSet(codes.Canceled, codes.DeadlineExceeded, codes.Internal, codes.ResourceExhausted, codes.Unavailable), 2, 25 * time.Millisecond, 250 * time.Millisecond}},
		{"no code", &routepb.RetryPolicy{RetryOn: "5xx"}, nil},
		{"nothing", &routepb.RetryPolicy{}, nil},
		{"num_retries", &routepb.RetryPolicy{RetryOn: "unavailable", NumRetries: wrapperspb.UInt32(3)}, &RetryPolicy{unavailable, 4, 25 * time.Millisecond, 250 * time.Millisecond}},
		{"num_retries above 4", &routepb.RetryPolicy{RetryOn: "unavailable", NumRetries: wrapperspb.UInt32(1 << 31)}, &RetryPolicy{unavailable, 5, 25 * time.Millisecond, 250 * time.Millisecond}},
		{"base_interval alone", &routepb.RetryPolicy{RetryOn: "unavailable", RetryBackOff: backoff(ms(10), nil)}, &RetryPolicy{unavailable, 2, 10 * time.Millisecond, 100 * time.Millisecond}},
		{"both intervals", &routepb.RetryPolicy{RetryOn: "unavailable", RetryBackOff: backoff(ms(10), ms(10))}, &RetryPolicy{unavailable, 2, 10 * time.Millisecond, 10 * time.Millisecond}},
		{"intervals below 1 ms", &routepb.RetryPolicy{RetryOn: "unavailable", RetryBackOff: backoff(ms(.5), ms(.7))}, &RetryPolicy{unavailable, 2, time.Millisecond, time.Millisecond}},
		{"an interval that is endless", &routepb.RetryPolicy{RetryOn: "unavailable", RetryBackOff: backoff(&durationpb.Duration{Seconds: 300_000_000_000}, nil)},
			&RetryPolicy{unavailable, 2, 1<<63 - 1, (1<<63 - 1) / 10 * 10}},
		{"what is ignored", &routepb.RetryPolicy{RetryOn: "unavailable", PerTryTimeout: ms(1), HostSelectionRetryMaxAttempts: 3, RetriableHeaders: []*routepb.HeaderMatcher{{}}},
			&RetryPolicy{unavailable, 2, 25 * time.Millisecond, 250 * time.Millisecond}},
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
		if got != want {
			t.Errorf("route %d retries %b, want %b", i, got, want)
		}
	}
}

func TestRetryConditionsThatAreNotOfGRPC(t *testing.T) {
	t.Parallel()
	config := routeConfig(xdsmsg.PrefixRoute("/", "a"))
	config.VirtualHosts[0].RetryPolicy = &routepb.RetryPolicy{RetryOn: "5xx,unavailable,reset"}
	checkIgnored(t, mustDecodeRoutes(t, config).Ignored,
		note{"virtual_hosts[0].retry_policy.retry_on", `"5xx,unavailable,reset": gRPC does not support 2 of the conditions (gRFC A44)`})
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
		{"upside down", &routepb.RetryPolicy{RetryBackOff: backoff(minute, second)}, []fault{{at + ".retry_back_off.max_interval", "1s is below base_interval, 1m0s"}}},
	})
}

func TestCodeSet(t *testing.T) {
	t.Parallel()
	s := NewCodeSet(codes.Internal, codes.Unauthenticated)
	for code := range codes.Code(40) {
		if got, want := s.Has(code), code == codes.Internal || code == codes.Unauthenticated; got != want {
			t.Errorf("Has(%v) = %v, want %v", code, got, want)
		}
	}
}
