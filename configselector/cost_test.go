package configselector_test

import (
	"context"
	"fmt"
	"testing"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/configselector"
	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/outcomes"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

func passing(n int) xdsresource.Listener {
	var filters []httpfilter.Instance
	for i := range n {
		filters = append(filters, filterOf(fmt.Sprint("f", i), pass))
	}
	return chainOf(filters...)
}

func doNothing(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
	return nil
}

// allocations returns the allocations of a unary RPC.
func allocations(s *configselector.Selector, opts ...grpc.CallOption) float64 {
	ctx := metadata.AppendToOutgoingContext(context.Background(), "k", "v")
	return testing.AllocsPerRun(1000, func() { _ = s.Unary(ctx, "/S/M", nil, nil, nil, doNothing, opts) })
}

// A unary RPC costs one allocation: without filters the Decision, with any number of them a
// larger object.
func TestAllocationsOfFilters(t *testing.T) {
	for _, n := range []int{0, 1, 5} {
		l := passing(n)
		if got := allocations(newSelector(t, &l, xdsmsg.PrefixRoute("/other", "other"), xdsmsg.PrefixRoute("/", "c"))); got != 1 {
			t.Errorf("%d filters: %v allocations, want 1", n, got)
		}
	}
}

// A retry policy adds one allocation to a unary RPC that succeeds at once: what it would be sent again by.
func TestAllocationsOfARetryPolicy(t *testing.T) {
	for _, test := range []struct {
		name   string
		policy *routepb.RetryPolicy
		want   float64
	}{{"no policy", nil, 1}, {"policy", &routepb.RetryPolicy{RetryOn: "unavailable"}, 2}} {
		route := xdsmsg.PrefixRoute("/", "c")
		route.GetRoute().RetryPolicy = test.policy
		var header metadata.MD
		if got := allocations(newSelector(t, &xdsresource.Listener{}, route), grpc.Header(&header), grpc.WaitForReady(true), grpc.StaticMethod()); got != test.want {
			t.Errorf("%s: %v allocations, want %v", test.name, got, test.want)
		}
	}
}

func BenchmarkFilters(b *testing.B) {
	for _, n := range []int{0, 1, 5} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			l := passing(n)
			s := newSelector(b, &l, xdsmsg.PrefixRoute("/", "c"))
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				_ = s.Unary(ctx, "/S/M", nil, nil, nil, doNothing, nil)
			}
		})
	}
}

// An RPC whose cluster a header names costs the same allocations while RPCs are counted: three for its metadata, and one for the RPC.
func TestAllocationsOfCounting(t *testing.T) {
	outcomes.Look()
	s := byHeader(t)
	ctx := metadata.AppendToOutgoingContext(context.Background(), "cluster", "c")
	got := testing.AllocsPerRun(1000, func() { _ = s.Unary(ctx, "/S/M", nil, nil, nil, doNothing, nil) })
	if got != 4 {
		t.Errorf("%v allocations, want 4", got)
	}
}

// byHeader has a route by whose header RPCs choose the cluster.
func byHeader(t testing.TB) *configselector.Selector {
	route := xdsmsg.PrefixRoute("/", "c")
	route.GetRoute().ClusterSpecifier = &routepb.RouteAction_ClusterHeader{ClusterHeader: "cluster"}
	return newSelector(t, &xdsresource.Listener{}, route, xdsmsg.PathRoute("/other", "c"))
}
