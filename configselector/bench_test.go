package configselector_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/dynxds/dynxds/configselector"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/outcomes"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// selectKinds are kinds of routes. An RPC of methodOf(i) with the metadata tenant=i takes the
// i-th.
var selectKinds = []struct {
	name  string
	route func(i int) *routepb.Route
}{
	{"exact", func(i int) *routepb.Route { return xdsmsg.PathRoute(methodOf(i), "c") }},
	{"prefix", func(i int) *routepb.Route { return xdsmsg.PrefixRoute(serviceOf(i)+"/", "c") }},
	{"regex", func(i int) *routepb.Route { return regexRoute(serviceOf(i) + "/(Me|Ve).*") }},
	{"headers", func(i int) *routepb.Route {
		match := fmt.Sprintf(`prefix: "/" headers { name: "tenant" string_match { exact: "%d" } }`, i)
		return xdsmsg.Route(parsed(new(routepb.RouteMatch), match), xdsmsg.ToCluster("c"))
	}},
	{"mix", func(i int) *routepb.Route {
		switch i % 4 {
		case 0:
			return xdsmsg.PathRoute(methodOf(i), "c")
		case 1:
			return xdsmsg.PrefixRoute(serviceOf(i)+"/", "c")
		case 2:
			return regexRoute(serviceOf(i) + "/(Me|Ve).*")
		default:
			return regexRoute(fmt.Sprintf(".*Service%d/Method", i))
		}
	}},
}

func serviceOf(i int) string { return fmt.Sprintf("/package.Service%d", i) }
func methodOf(i int) string  { return serviceOf(i) + "/Method" }

func regexRoute(pattern string) *routepb.Route {
	match := parsed(new(routepb.RouteMatch), fmt.Sprintf("safe_regex { regex: %q }", pattern))
	return xdsmsg.Route(match, xdsmsg.ToCluster("c"))
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
			route := xdsmsg.PrefixRoute("/", "c")
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

// BenchmarkCounted is a unary RPC before anybody has looked at outcomes, and while they are counted. It comes last, as
// counting goes on for a while.
func BenchmarkCounted(b *testing.B) {
	s := newSelector(b, &xdsresource.Listener{}, xdsmsg.PrefixRoute("/", "c"))
	ctx := context.Background()
	loop := func(s *configselector.Selector, ctx context.Context) func(*testing.B) {
		return func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Unary(ctx, "/S/M", nil, nil, nil, doNothing, nil); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	alone, named := loop(s, ctx), loop(byHeader(b), metadata.AppendToOutgoingContext(ctx, "cluster", "c"))
	parallel := func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				_ = s.Unary(ctx, "/S/M", nil, nil, nil, doNothing, nil)
			}
		})
	}
	b.Run("off", alone)
	b.Run("off, parallel", parallel)
	b.Run("off, by header", named)
	outcomes.Look()
	b.Run("on", alone)
	b.Run("on, parallel", parallel)
	b.Run("on, by header", named)
}
