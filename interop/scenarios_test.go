package interop_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	faultpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/interop/gocp"
	"github.com/dynxds/dynxds/testutils"
)

// scenario is a feature as go-control-plane serves it: the resources, and what
// RPCs see of them.
type scenario struct {
	name      string
	resources func(w *world) []proto.Message
	check     func(ctx context.Context, t *testing.T, w *world, client testpb.TestServiceClient)
}

var scenarios = []scenario{
	{
		name: "a route by a header",
		resources: func(w *world) []proto.Message {
			byHeader := xdsmsg.With(xdsmsg.PrefixRoute("/", "green"), `match { headers { name: "tenant" string_match { exact: "green" } } }`)
			return append(w.both(), listener("routes"), xdsmsg.RouteConfig("routes", service, byHeader, xdsmsg.PrefixRoute("/", "blue")))
		},
		check: func(ctx context.Context, t *testing.T, _ *world, client testpb.TestServiceClient) {
			mustAnswer(ctx, t, client, "blue")
			mustAnswer(metadata.AppendToOutgoingContext(ctx, "tenant", "green"), t, client, "green")
		},
	},
	{
		name: "retries",
		resources: func(w *world) []proto.Message {
			route := xdsmsg.With(xdsmsg.PrefixRoute("/", "blue"), `route { retry_policy { retry_on: "unavailable" num_retries { value: 2 } } }`)
			return append(w.both(), listener("routes"), xdsmsg.RouteConfig("routes", service, route, xdsmsg.PrefixRoute("/unused", "green")))
		},
		check: func(ctx context.Context, t *testing.T, w *world, client testpb.TestServiceClient) {
			failTimes(w.blue, 2)
			before := w.blue.Count()
			mustAnswer(ctx, t, client, "blue")
			if n := w.blue.Count() - before; n != 3 {
				t.Errorf("the RPC took %d attempts, want 3", n)
			}
		},
	},
	{
		name: "a filter that ends RPCs",
		resources: func(w *world) []proto.Message {
			return append(w.initial()[1:], xdsmsg.DefaultListener(service, "routes", xdsmsg.Filter("fault", abortWith(codes.DataLoss))))
		},
		check: func(ctx context.Context, t *testing.T, w *world, client testpb.TestServiceClient) {
			mustFailWith(ctx, t, client, codes.DataLoss)
			w.control.Set(t, w.initial()...)
			for status.Code(unary(ctx, client)) == codes.DataLoss && ctx.Err() == nil {
			}
			mustAnswer(ctx, t, client, "blue")
		},
	},
	{
		name: "a filter with a configuration for one route",
		resources: func(w *world) []proto.Message {
			spared := xdsmsg.PathRoute(testpb.TestService_UnaryCall_FullMethodName, "blue")
			spared.TypedPerFilterConfig = map[string]*anypb.Any{"fault": xdsmsg.Any(&faultpb.HTTPFault{})}
			return append(w.initial()[2:], xdsmsg.DefaultListener(service, "routes", xdsmsg.Filter("fault", abortWith(codes.Aborted))),
				xdsmsg.RouteConfig("routes", service, spared, xdsmsg.PrefixRoute("/", "blue")))
		},
		check: func(ctx context.Context, t *testing.T, _ *world, client testpb.TestServiceClient) {
			mustAnswer(ctx, t, client, "blue")
			if _, err := client.EmptyCall(ctx, &testpb.Empty{}); status.Code(err) != codes.Aborted {
				t.Errorf("the RPC of the other method ended with %v, want ABORTED", err)
			}
		},
	},
	{
		name: "failover to the next priority, and back",
		resources: func(w *world) []proto.Message {
			far := xdsmsg.In("far", w.green.Addr())
			far.Priority = 1
			return append(w.initial()[:3:3], xdsmsg.Endpoints("endpoints-of-blue", xdsmsg.In("near", w.blue.Addr()), far))
		},
		check: func(ctx context.Context, t *testing.T, w *world, client testpb.TestServiceClient) {
			mustAnswer(ctx, t, client, "blue")
			w.blue.GracefulStop()
			mustAnswer(ctx, t, client, "green")
			xdstest.NoError(t, w.blue.Restart())
			for {
				id, err := answeredBy(ctx, client)
				xdstest.NoError(t, err)
				if id == "blue" {
					return
				}
			}
		},
	},
	{
		name: "a ring by a header's hash",
		resources: func(w *world) []proto.Message {
			route := xdsmsg.With(xdsmsg.PrefixRoute("/", "blue"), `route { hash_policy { header { header_name: "user" } } }`)
			return []proto.Message{listener("routes"), xdsmsg.RouteConfig("routes", service, route),
				xdsmsg.With(cluster("blue", "blue"), "lb_policy: RING_HASH"), w.endpoints("blue", w.blue, w.green)}
		},
		check: func(ctx context.Context, t *testing.T, _ *world, client testpb.TestServiceClient) {
			seen := map[string]bool{}
			for user := range 20 {
				ctx := metadata.AppendToOutgoingContext(ctx, "user", fmt.Sprint("user-", user))
				id, err := answeredBy(ctx, client)
				xdstest.NoError(t, err)
				seen[id] = true
				for range 5 {
					mustAnswer(ctx, t, client, id)
				}
			}
			if len(seen) != 2 {
				t.Errorf("20 users were all sent to %v", seen)
			}
		},
	},
	{
		name: "drops",
		resources: func(w *world) []proto.Message {
			return append(w.initial()[:3:3], xdsmsg.With(w.endpoints("blue", w.blue),
				`policy { drop_overloads { category: "lb" drop_percentage { numerator: 100 } } }`))
		},
		check: func(ctx context.Context, t *testing.T, _ *world, client testpb.TestServiceClient) {
			mustFailWith(ctx, t, client, codes.Unavailable)
		},
	},
	{
		name: "an endpoint that is not healthy",
		resources: func(w *world) []proto.Message {
			endpoints := w.endpoints("blue", w.blue, w.green)
			endpoints.Endpoints[0].LbEndpoints[0].HealthStatus = corepb.HealthStatus_UNHEALTHY
			return append(w.initial()[:3:3], endpoints)
		},
		check: func(ctx context.Context, t *testing.T, _ *world, client testpb.TestServiceClient) {
			mustAnswer(ctx, t, client, "green")
		},
	},
}

func abortWith(code codes.Code) *faultpb.HTTPFault {
	return xdsmsg.With(new(faultpb.HTTPFault), `abort { grpc_status: %d percentage { numerator: 100 } }`, code)
}

// dynxds accepts each feature from go-control-plane's server in each mode, and RPCs show it.
func TestScenarios(t *testing.T) {
	for _, mode := range gocp.Modes {
		for _, s := range scenarios {
			xdstest.Parallel(t, s.name+", "+mode.String(), func(t *testing.T) {
				w := &world{
					control: gocp.Start(t, mode),
					blue:    testutils.StartBackend(t, "blue"),
					green:   testutils.StartBackend(t, "green"),
				}
				w.control.Set(t, s.resources(w)...)
				cc := dial(t, dynxdsBuilder(t, w.control), "xds:///"+service)
				s.check(testutils.Context(t), t, w, testpb.NewTestServiceClient(cc))
			})
		}
	}
}

// both is a cluster of each backend.
func (w *world) both() []proto.Message {
	return []proto.Message{cluster("blue", "blue"), cluster("green", "green"), w.endpoints("blue", w.blue), w.endpoints("green", w.green)}
}

// failTimes makes a backend fail its next n RPCs with UNAVAILABLE.
func failTimes(b *testutils.Backend, n int32) {
	var got atomic.Int32
	b.SetBehaviour(func(context.Context, testutils.RPC) error {
		if got.Add(1) <= n {
			return testutils.TrailersOnly(status.Error(codes.Unavailable, "not yet"))
		}
		return nil
	})
}

func unary(ctx context.Context, client testpb.TestServiceClient) error {
	_, err := client.UnaryCall(ctx, &testpb.SimpleRequest{})
	return err
}

func answeredBy(ctx context.Context, client testpb.TestServiceClient) (string, error) {
	reply, err := client.UnaryCall(ctx, &testpb.SimpleRequest{}, grpc.WaitForReady(true))
	return reply.GetHostname(), err
}

func mustAnswer(ctx context.Context, t *testing.T, client testpb.TestServiceClient, want string) {
	t.Helper()
	got, err := answeredBy(ctx, client)
	xdstest.NoError(t, err)
	if got != want {
		t.Errorf("%s answered, want %s", got, want)
	}
}

func mustFailWith(ctx context.Context, t *testing.T, client testpb.TestServiceClient, want codes.Code) {
	t.Helper()
	if err := unary(ctx, client); status.Code(err) != want {
		t.Errorf("the RPC ended with %v, want %v", err, want)
	}
}
