package configselector_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// selectKinds are kinds of routes. An RPC of methodOf(i) with the metadata tenant=i takes the
// i-th.
var selectKinds = []struct {
	name  string
	route func(i int) *routepb.Route
}{
	{"exact", func(i int) *routepb.Route {
		return routeFor(&routepb.RouteMatch{PathSpecifier: &routepb.RouteMatch_Path{Path: methodOf(i)}})
	}},
	{"prefix", func(i int) *routepb.Route { return toCluster(serviceOf(i)+"/", "c") }},
	{"regex", func(i int) *routepb.Route { return routeFor(regexOf(serviceOf(i) + "/(Me|Ve).*")) }},
	{"headers", func(i int) *routepb.Route {
		return routeFor(&routepb.RouteMatch{
			PathSpecifier: &routepb.RouteMatch_Prefix{Prefix: "/"},
			Headers: []*routepb.HeaderMatcher{{Name: "tenant", HeaderMatchSpecifier: &routepb.HeaderMatcher_StringMatch{
				StringMatch: &matcherpb.StringMatcher{MatchPattern: &matcherpb.StringMatcher_Exact{Exact: fmt.Sprint(i)}},
			}}},
		})
	}},
	{"mix", func(i int) *routepb.Route {
		switch i % 4 {
		case 0:
			return routeFor(&routepb.RouteMatch{PathSpecifier: &routepb.RouteMatch_Path{Path: methodOf(i)}})
		case 1:
			return toCluster(serviceOf(i)+"/", "c")
		case 2:
			return routeFor(regexOf(serviceOf(i) + "/(Me|Ve).*"))
		default:
			return routeFor(regexOf(".*Service" + fmt.Sprint(i) + "/Method"))
		}
	}},
}

func serviceOf(i int) string { return fmt.Sprintf("/package.Service%d", i) }
func methodOf(i int) string  { return serviceOf(i) + "/Method" }

func routeFor(m *routepb.RouteMatch) *routepb.Route {
	route := toCluster("", "c")
	route.Match = m
	return route
}

func regexOf(pattern string) *routepb.RouteMatch {
	return &routepb.RouteMatch{PathSpecifier: &routepb.RouteMatch_SafeRegex{SafeRegex: &matcherpb.RegexMatcher{Regex: pattern}}}
}

// BenchmarkSelect is what an RPC costs between the application and gRPC: the route,
// the cluster, the Decision.
func BenchmarkSelect(b *testing.B) {
	for _, kind := range selectKinds {
		for _, n := range []int{1, 100, 1_000, 10_000} {
			b.Run(fmt.Sprintf("%s/%d", kind.name, n), func(b *testing.B) {
				routes := make([]*routepb.Route, n)
				for i := range routes {
					routes[i] = kind.route(i)
				}
				s := newSelector(b, &xdsresource.Listener{}, routes...)
				ctx := metadata.AppendToOutgoingContext(context.Background(), "tenant", fmt.Sprint(n/2))
				method := methodOf(n / 2)
				b.ReportAllocs()
				for b.Loop() {
					if err := s.Unary(ctx, method, nil, nil, nil, doNothing, nil); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// pickOnly does what the picker of a cluster does.
func pickOnly(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
	decision.FromContext(ctx).Sent("127.0.0.1:80")
	return nil
}

// BenchmarkNotRetried is a unary RPC that succeeds at once, with and without a retry
// policy.
func BenchmarkNotRetried(b *testing.B) {
	for name, policy := range map[string]*routepb.RetryPolicy{
		"no policy": nil, "policy": {RetryOn: "unavailable"},
		"timeout":        {RetryOn: "unavailable", PerTryTimeout: durationpb.New(time.Minute)},
		"previous hosts": {RetryOn: "unavailable", RetryHostPredicate: []*routepb.RetryPolicy_RetryHostPredicate{{Name: "envoy.retry_host_predicates.previous_hosts"}}},
	} {
		b.Run(name, func(b *testing.B) {
			route := toCluster("/", "c")
			route.GetRoute().RetryPolicy = policy
			s := newSelector(b, &xdsresource.Listener{}, route)
			ctx := context.Background()
			var header metadata.MD
			opts := []grpc.CallOption{grpc.Header(&header)}
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Unary(ctx, "/S/M", nil, nil, nil, pickOnly, opts); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
