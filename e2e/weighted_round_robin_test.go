package e2e_test

import (
	"fmt"
	"testing"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	wrrpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/client_side_weighted_round_robin/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/orca"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// wrrPolicy weighs by the metrics of single RPCs, from the first on, and looks at
// them as often as gRPC permits.
func wrrPolicy(t *testing.T) *clusterpb.LoadBalancingPolicy {
	t.Helper()
	config, err := anypb.New(&wrrpb.ClientSideWeightedRoundRobin{
		BlackoutPeriod:     durationpb.New(time.Nanosecond),
		WeightUpdatePeriod: durationpb.New(100 * time.Millisecond),
	})
	xdstest.NoError(t, err)
	return &clusterpb.LoadBalancingPolicy{Policies: []*clusterpb.LoadBalancingPolicy_Policy{
		{TypedExtensionConfig: &corepb.TypedExtensionConfig{Name: "wrr", TypedConfig: config}},
	}}
}

// gRFC A58 through xDS: the metrics of single RPCs reach gRPC's policy, whose
// weights follow them, also where load is reported.
func TestWeightedRoundRobinByBackendMetrics(t *testing.T) {
	t.Parallel()
	for _, lrs := range []bool{false, true} {
		parallel(t, fmt.Sprintf("lrs=%v", lrs), func(t *testing.T) {
			m := newLoadMesh(t)
			backend := func(id string, utilization float64) *testutils.Backend {
				return orcaBackend(t, id, func(r orca.CallMetricsRecorder) {
					r.SetQPS(100)
					r.SetApplicationUtilization(utilization)
				})
			}
			idle, busy := backend("idle", 0.2), backend("busy", 0.8) // weights 500 and 125
			c := xdsmsg.EDSCluster("blue", "blue-eds")
			if lrs {
				c = reporting("blue", "application_utilization")
			}
			c.LoadBalancingPolicy = wrrPolicy(t)
			m.set(append(chain(service, xdsmsg.PrefixRoute("", "blue")), c, xdsmsg.SimpleEndpoints("blue-eds", idle.Addr(), busy.Addr()))...)
			cc := m.dial("xds:///" + service)
			if err := awaitShare(t, cc, idle.ID(), 0.8); err != nil {
				t.Error(err)
			}
		})
	}
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
