package interop_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	_ "github.com/dynxds/dynxds/balancer/rls"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/lookup"
	"github.com/dynxds/dynxds/interop/gocp"
	"github.com/dynxds/dynxds/testutils"
)

// A RouteLookupService sends the RPCs of both clients to the same clusters, with the same keys and header data, and fails them in
// the same way. A target that does not exist is no part of this: in gRPC-Go, whose RLS drops the error of a child, its RPCs wait
// for their deadline (v1.85.0).
func TestLookupAsInGRPCGo(t *testing.T) {
	for name, more := range map[string]string{"with a default target": `default_target: "other"`, "without": ""} {
		xdstest.Parallel(t, name, func(t *testing.T) {
			theirs := lookedUp(t, grpcGo, more)
			xdstest.Equal(t, "outcomes", theirs, lookedUp(t, ours, more))
			if !strings.Contains(theirs, "a: OK by blue with [data of a]") || !strings.Contains(theirs, "b: Unavailable") {
				t.Errorf("outcomes %s", theirs)
			}
		})
	}
}

// lookedUp returns what becomes of RPCs of some tenants, whose cluster a RouteLookupService chooses, and what that was asked.
func lookedUp(t *testing.T, peer, more string) string {
	control, l := gocp.Start(t, gocp.AnyNames), lookup.Start(t)
	blue, green, dead := testutils.StartBackend(t, "blue"), testutils.StartBackend(t, "green"), testutils.StartBackend(t, "dead")
	dead.Stop()
	w := &world{control: control}
	l.Send("a", "blue")
	l.Send("b", "dead")
	l.Send("c", "dead", "other")
	rc := xdsmsg.RouteConfig("routes", "*", xdsmsg.Route(xdsmsg.Prefix(""), &routepb.RouteAction{
		ClusterSpecifier: &routepb.RouteAction_ClusterSpecifierPlugin{ClusterSpecifierPlugin: "p"}}))
	rc.ClusterSpecifierPlugins = []*routepb.ClusterSpecifierPlugin{l.Plugin(more)}
	control.Set(t, listener("routes"), rc, cluster("blue", "blue"), w.endpoints("blue", blue),
		cluster("other", "other"), w.endpoints("other", green), cluster("dead", "dead"), w.endpoints("dead", dead))
	for _, b := range []*testutils.Backend{blue, green} {
		b.SetBehaviour(func(ctx context.Context, rpc testutils.RPC) error {
			return grpc.SetHeader(ctx, metadata.MD{"data": rpc.Metadata.Get("x-google-rls-data")})
		})
	}
	client := testpb.NewTestServiceClient(dial(t, builderOf(t, peer, control.Bootstrap()), "xds:///"+service))
	var all strings.Builder
	for _, tenant := range []string{"a", "b", "c", "unknown"} {
		var header metadata.MD
		ctx := metadata.AppendToOutgoingContext(testutils.Context(t), "x-tenant", tenant)
		_, err := client.EmptyCall(ctx, new(testpb.Empty), grpc.Header(&header))
		fmt.Fprintf(&all, "%s: %s by %s with %v\n", tenant, status.Code(err), strings.Join(header.Get(testutils.BackendIDHeader), ""), header.Get("data"))
	}
	fmt.Fprintln(&all, "asked:", strings.Join(l.Asked(), "; "))
	return all.String()
}
