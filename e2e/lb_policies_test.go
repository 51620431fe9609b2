package e2e_test

import (
	"context"
	"fmt"
	"testing"

	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/client_side_weighted_round_robin/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/orca"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// Every policy of lb_policy serves over real connections (gRFC A27, A42, A48).
func TestEveryLBPolicyServes(t *testing.T) {
	everyWay(t)
	t.Parallel()
	for _, policy := range []string{"ROUND_ROBIN", "LEAST_REQUEST", "RING_HASH", "RANDOM"} {
		xdstest.Parallel(t, policy, func(t *testing.T) {
			m := newMesh(t)
			a, b := testutils.StartBackend(t, "a"), testutils.StartBackend(t, "b")
			m.serveCluster(with(xdsmsg.EDSCluster("by-"+policy, ""), "lb_policy: %s", policy), a, b)
			cc := m.dial("xds:///" + service)
			ctx := testutils.Context(t)
			// Both get RPCs: that one of the two got none of 200 draws is a
			// chance of 1 in 10^40 even at a third of the ring.
			for range 200 {
				backendFor(ctx, t, cc, unary)
			}
			reachAll(t, cc, a, b) // one may have been connecting
		})
	}
}

// wrrPolicy weighs by the metrics of single RPCs, from the first on, and looks at them as often as gRPC
// permits.
const wrrPolicy = `policies { typed_extension_config { name: "wrr" typed_config {
	[type.googleapis.com/envoy.extensions.load_balancing_policies.client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin] {
		blackout_period { nanos: 1 } weight_update_period { nanos: 100000000 }
	}
} } }`

// gRFC A58 through xDS: the metrics of single RPCs reach gRPC's policy, whose weights follow them, also where load is reported.
func TestWeightedRoundRobinByBackendMetrics(t *testing.T) {
	inOneWay(t, "the weights are in the answers of the backends")
	t.Parallel()
	m := newMesh(t)
	// A backend reports at the end of each unary RPC.
	backend := func(id string, utilization float64) *testutils.Backend {
		return testutils.StartBackend(t, id, orca.CallMetricsServerOption(nil), grpc.ChainUnaryInterceptor(
			func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
				r := orca.CallMetricsRecorderFromContext(ctx)
				r.SetQPS(100)
				r.SetApplicationUtilization(utilization)
				return handler(ctx, req)
			}))
	}
	idle, busy := backend("idle", 0.2), backend("busy", 0.8) // weights 500 and 125
	c := with(xdsmsg.EDSCluster("c", ""), `lrs_server { self {} } lrs_report_endpoint_metrics: "application_utilization" load_balancing_policy { %s }`, wrrPolicy)
	cc := m.dialServing(chain(service, toCluster("c")), c, endpointsOf("c", idle, busy))
	xdstest.NoError(t, awaitShare(t, cc, idle.ID(), 0.8))
}

// awaitShare makes RPCs until a backend has its share of 1,000 in a row, within 0.02:
// the policy's schedule is exact but for its first turn.
func awaitShare(t *testing.T, cc *grpc.ClientConn, backend string, want float64) error {
	t.Helper()
	const n = 1000
	share := 0.0
	for ctx := testutils.Context(t); ctx.Err() == nil; {
		count := 0
		for range n {
			id, err := call(ctx, cc, unary, grpc.WaitForReady(true))
			if err != nil {
				return err
			}
			if id == backend {
				count++
			}
		}
		if share = float64(count) / n; share > want-0.02 && share < want+0.02 {
			return nil
		}
	}
	return fmt.Errorf("the backend's share of RPCs is %.2f, want %.2f", share, want)
}

// hashed is a route of all RPCs to the cluster, with hash policies.
func hashed(cluster, policies string) *routepb.Route {
	return with(toCluster(cluster), "route { %s }", policies)
}

// Hash policies.
const (
	hashOfUser    = `hash_policy { header { header_name: "user" } }`
	hashOfChannel = `hash_policy { filter_state { key: "io.grpc.channel_id" } }`
)

// onRing is a cluster of the policy RING_HASH. The places of the backends on the
// ring follow from their ids (gRFC A76, "hash_key") and the size, so they are the
// same in each run.
func onRing(name string, size int, backends ...*testutils.Backend) []proto.Message {
	cluster := with(xdsmsg.EDSCluster(name, ""), `lb_policy: RING_HASH ring_hash_lb_config { minimum_ring_size { value: %d } }`, size)
	return []proto.Message{cluster, keyedEndpoints(name, backends...)}
}

func keyedEndpoints(name string, backends ...*testutils.Backend) *endpointpb.ClusterLoadAssignment {
	m := endpointsOf(name, backends...)
	for i, e := range m.GetEndpoints()[0].GetLbEndpoints() {
		with(e, `metadata { filter_metadata { key: "envoy.lb" value {
			fields { key: "hash_key" value { string_value: %q } }
		} } }`, backends[i].ID())
	}
	return m
}

// gRFC A42, "Hash Policies": RPCs with the same hash go to one endpoint, whatever their kind, from the first one on; so do those of a
// channel with the hash of the channel.
func TestHashPoliciesMakeRPCsSticky(t *testing.T) {
	t.Parallel()
	inOneWay(t, "RPCs are spread over the same endpoints")
	for name, tc := range map[string]struct {
		policies string
		apart    bool // RPCs of different users do not all go to one backend
	}{
		"header":  {hashOfUser, true},
		"channel": {hashOfChannel, false},
	} {
		xdstest.Parallel(t, name, func(t *testing.T) {
			m := newMesh(t)
			m.set(chain(service, hashed("c", tc.policies)), onRing("c", 64, backends(t, "b0", "b1", "b2", "b3")...))
			cc := m.dial("xds:///" + service)
			reached := map[string]bool{}
			for i := range 24 {
				user := fmt.Sprintf("u%d", i)
				want := backendFor(testutils.Context(t), t, cc, unary, "user", user)
				reached[want] = true
				for _, k := range kinds {
					xdstest.Equal(t, string(k)+" RPC of "+user, want, backendFor(testutils.Context(t), t, cc, k, "user", user))
				}
			}
			if (len(reached) > 1) != tc.apart {
				t.Errorf("RPCs of 24 users went to %v", reached)
			}
			// Channels have hashes of their own.
			for ctx := testutils.Context(t); len(reached) == 1; {
				reached[backendFor(ctx, t, m.dial("xds:///"+service), unary)] = true
			}
		})
	}
}
