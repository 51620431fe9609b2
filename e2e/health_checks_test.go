package e2e_test

import (
	"maps"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// withHealth serves gRPC's health service beside what a Backend serves.
func withHealth(t *testing.T) (*health.Server, grpc.ServerOption) {
	s := health.NewServer()
	t.Cleanup(s.Shutdown)
	return s, grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		return healthpb.Health_ServiceDesc.Streams[0].Handler(s, stream)
	})
}

// Endpoints get RPCs while they serve, or if they have no health service (Envoy, Cluster.health_checks with
// grpc_health_check, by gRFC A17).
func TestHealthChecksEndToEnd(t *testing.T) {
	t.Parallel()
	m, service := newMesh(t), ownService(t)
	health1, option1 := withHealth(t)
	health2, option2 := withHealth(t)
	one, two, without := testutils.StartBackend(t, "one", option1), testutils.StartBackend(t, "two", option2), testutils.StartBackend(t, "without")
	health1.SetServingStatus("shop", healthpb.HealthCheckResponse_SERVING)
	m.set(chain(service, toCluster("c")), endpointsOf("c", one, two, without), with(xdsmsg.EDSCluster("c", ""),
		`health_checks { timeout { seconds: 1 } interval { seconds: 1 } grpc_health_check { service_name: "shop" } }`))
	cc, unchecked := m.dial("xds:///"+service), m.dial("xds:///"+service, grpc.WithDisableHealthCheck())
	// reach waits until RPCs reach exactly these backends.
	reach := func(when string, cc *grpc.ClientConn, want ...string) {
		t.Helper()
		ctx := testutils.Context(t)
		for {
			seen := make(map[string]bool)
			for range 12 {
				id, err := call(ctx, cc, unary, grpc.WaitForReady(true))
				if err != nil {
					t.Fatalf("%s: %v", when, err)
				}
				seen[id] = true
			}
			if slices.Equal(slices.Sorted(maps.Keys(seen)), want) {
				return
			}
		}
	}
	reach("two does not know the service", cc, "one", "without")
	health2.SetServingStatus("shop", healthpb.HealthCheckResponse_SERVING)
	reach("all serve", cc, "one", "two", "without")
	health1.SetServingStatus("shop", healthpb.HealthCheckResponse_NOT_SERVING)
	reach("one does not serve", cc, "two", "without")
	reach("the channel does not check", unchecked, "one", "two", "without")
	xdstest.NoError(t, unchecked.Close())
	awaitCluster(t, "the health of the endpoints", service, "c", func(c inspect.Cluster) bool {
		if len(c.Priorities) == 0 {
			return false
		}
		got := make(map[string]string)
		for _, e := range c.Priorities[0].Localities[0].Endpoints {
			got[e.Addresses[0]] = e.HealthCheck
		}
		return got[one.Addr()] == "NOT_SERVING" && got[two.Addr()] == "SERVING" && got[without.Addr()] == "UNIMPLEMENTED"
	})
}
