package e2e_test

import (
	"context"
	"testing"
	"time"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// What gRPC makes of an RPC is what routes match. internal/xdsresource/testdata/rpcs.txt has the matches themselves.
func TestMatchesEndToEnd(t *testing.T) {
	t.Parallel()
	inOneWay(t, "the routes stay the same")
	for name, tc := range map[string]struct {
		match string
		opt   grpc.CallOption
	}{
		"metadata of several values":              {`name: "h" string_match { exact: "a,b" }`, grpc.EmptyCallOption{}},
		":authority of grpc.CallAuthority":        {`name: ":authority" string_match { exact: "mine" }`, grpc.CallAuthority("mine")},
		":scheme":                                 {`name: ":scheme" string_match { exact: "http" }`, grpc.EmptyCallOption{}},
		"content-type of grpc.CallContentSubtype": {`name: "content-type" string_match { exact: "application/grpc+proto" }`, grpc.CallContentSubtype("proto")},
	} {
		xdstest.Parallel(t, name, func(t *testing.T) {
			m := newMesh(t)
			hit, miss := testutils.StartBackend(t, "hit"), testutils.StartBackend(t, "miss")
			m.serveRoutes([]*routepb.Route{routeOf(`match { prefix: "" headers { %s } } route { cluster: "hit" }`, tc.match), toCluster("miss")}, hit, miss)
			ctx := metadata.AppendToOutgoingContext(testutils.Context(t), "h", "a", "h", "b")
			got, err := call(ctx, m.dial("xds:///"+service), unary, grpc.WaitForReady(true), tc.opt)
			xdstest.NoError(t, err)
			xdstest.Equal(t, "the backend", "hit", got)
		})
	}
}

// gRFC A31, "Max Stream Duration": grpc_timeout_header_max goes before
// max_stream_duration, and both before the Listener's; 0 is no bound; what the
// application has set is kept if it is sooner.
func TestMaxStreamDurationsEndToEnd(t *testing.T) {
	t.Parallel()
	m, backend := newMesh(t), testutils.StartBackend(t, "b")
	bounded := func(method, duration string) *routepb.Route {
		return with(xdsmsg.PathRoute("/grpc.testing.TestService/"+method, "b"), `route { max_stream_duration { %s } }`, duration)
	}
	manager := new(hcmpb.HttpConnectionManager)
	xdstest.NoError(t, xdsmsg.DefaultListener(service, service).GetApiListener().GetApiListener().UnmarshalTo(manager))
	with(manager, `common_http_protocol_options { max_stream_duration { seconds: 3600 } }`)
	m.set(clusterOf("b", backend), xdsmsg.APIListener(service, manager), xdsmsg.RouteConfig(service, service,
		bounded("UnaryCall", `max_stream_duration { seconds: 1 } grpc_timeout_header_max { seconds: 60 }`),
		bounded("StreamingOutputCall", `max_stream_duration { seconds: 60 }`),
		bounded("StreamingInputCall", `max_stream_duration {}`),
		toCluster("b")))
	cc := m.dial("xds:///" + service)
	for _, tc := range []struct {
		kind kind
		want time.Duration // 0: none
	}{{unary, time.Minute}, {serverStreaming, time.Minute}, {clientStreaming, 0}, {bidiStreaming, time.Hour}} {
		start := time.Now()
		backendFor(t.Context(), t, cc, tc.kind)
		switch got := backend.Last().Deadline; {
		case tc.want == 0 && !got.IsZero(), tc.want > 0 && got.IsZero():
			t.Errorf("%s RPC: deadline %v, want in %v", tc.kind, got, tc.want)
		case tc.want > 0 && (got.Before(start.Add(tc.want-time.Second)) || got.After(time.Now().Add(tc.want+time.Second))):
			t.Errorf("%s RPC: deadline in %v, want %v", tc.kind, time.Until(got), tc.want)
		}
		sooner, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		_, err := call(sooner, cc, tc.kind)
		cancel()
		xdstest.NoError(t, err)
		if in := time.Until(backend.Last().Deadline); in > 20*time.Second {
			t.Errorf("%s RPC: deadline in %v, and the application has set 20s", tc.kind, in)
		}
	}
}
