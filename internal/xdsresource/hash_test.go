package xdsresource

import (
	"math/bits"
	"testing"

	"github.com/cespare/xxhash/v2"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/xdsmsg"
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
		t.Run(tc.given, func(t *testing.T) {
			t.Parallel()
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
