package e2e_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/balancer"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/testutils"
)

// trafficTo returns what the process counts for a cluster.
func trafficTo(cluster string) balancer.Traffic {
	for _, t := range balancer.TrafficByCluster() {
		if t.Cluster == cluster {
			return t
		}
	}
	return balancer.Traffic{}
}

// gRFC A32 over real connections: of two channels together, exactly as many
// streams as max_requests.
func TestCircuitBreakingOverTwoChannels(t *testing.T) {
	t.Parallel()
	const limit = 7
	m, b := newMesh(t), testutils.StartBackend(t, "b")
	const name = "circuit"
	cluster := xdsmsg.EDSCluster(name, "")
	cluster.CircuitBreakers = &clusterpb.CircuitBreakers{Thresholds: []*clusterpb.CircuitBreakers_Thresholds{
		{MaxRequests: wrapperspb.UInt32(limit)},
	}}
	m.set(append(chain(service, xdsmsg.PrefixRoute("", name)), cluster, xdsmsg.SimpleEndpoints(name, b.Addr()))...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	channels := []*grpc.ClientConn{m.dial("xds:///" + service), m.dial("xds:///" + service)}
	open := func(i int) error {
		_, err := openStream(ctx, channels[i%2], grpc.WaitForReady(true))
		return err
	}
	for i := range limit {
		if err := open(i); err != nil {
			t.Fatalf("stream %d of %d: %v", i+1, limit, err)
		}
	}
	for i := range 4 {
		if err := open(i); status.Code(err) != codes.Unavailable {
			t.Errorf("a stream over the limit ended with %v, want UNAVAILABLE", err)
		}
	}
	if got := trafficTo(name); got.InFlight != limit || got.Refused != 4 {
		t.Errorf("%d RPCs in flight and %d refused, want %d and 4", got.InFlight, got.Refused, limit)
	}
	cancel()
	for trafficTo(name).InFlight > 0 { // for ever, if an end is not counted
		runtime.Gosched()
	}
}

// Drops of a quarter of the RPCs, over real connections. The standard deviation
// of 4,000 draws is 0.7 %, so 4.3 of them are 3 %: once in 100,000 runs.
func TestDropsOverRealConnections(t *testing.T) {
	t.Parallel()
	const n = 4000
	m, b := newMesh(t), testutils.StartBackend(t, "b")
	const name = "dropping"
	endpoints := xdsmsg.SimpleEndpoints(name, b.Addr())
	endpoints.Policy = &endpointpb.ClusterLoadAssignment_Policy{DropOverloads: []*endpointpb.ClusterLoadAssignment_Policy_DropOverload{
		{Category: "spare", DropPercentage: &typepb.FractionalPercent{Numerator: 25}},
	}}
	m.set(append(chain(service, xdsmsg.PrefixRoute("", name)), xdsmsg.EDSCluster(name, ""), endpoints)...)
	cc := m.dial("xds:///" + service)
	dropped := 0
	for range n {
		_, err := call(t.Context(), cc, unary, grpc.WaitForReady(true))
		switch status.Code(err) {
		case codes.OK:
		case codes.Unavailable:
			dropped++
		default:
			t.Fatal(err)
		}
	}
	if share := float64(dropped) / n; share < 0.22 || share > 0.28 {
		t.Errorf("%.1f %% of the RPCs were dropped, want 25 ± 3", share*100)
	}
	if got := trafficTo(name).Dropped["spare"]; got != uint64(dropped) {
		t.Errorf("%d RPCs were counted as dropped, %d were", got, dropped)
	}
}

// Every policy of lb_policy serves over real connections (gRFC A27, A42, A48).
func TestEveryLBPolicyServes(t *testing.T) {
	t.Parallel()
	for _, policy := range []clusterpb.Cluster_LbPolicy{
		clusterpb.Cluster_ROUND_ROBIN, clusterpb.Cluster_LEAST_REQUEST, clusterpb.Cluster_RING_HASH, clusterpb.Cluster_RANDOM,
	} {
		parallel(t, policy.String(), func(t *testing.T) {
			m := newMesh(t)
			a, b := testutils.StartBackend(t, "a"), testutils.StartBackend(t, "b")
			name := "by-" + policy.String()
			cluster := xdsmsg.EDSCluster(name, "")
			cluster.LbPolicy = policy
			m.set(append(chain(service, xdsmsg.PrefixRoute("", name)), cluster, xdsmsg.SimpleEndpoints(name, a.Addr(), b.Addr()))...)
			cc := m.dial("xds:///" + service)
			ctx := testutils.Context(t)
			// Both get RPCs: that one of the two got none of 200 draws is a
			// chance of 1 in 10^40 even at a third of the ring.
			for range 200 {
				if _, err := call(ctx, cc, unary, grpc.WaitForReady(true)); err != nil {
					t.Fatal(err)
				}
			}
			for a.Count() == 0 || b.Count() == 0 { // one may have been connecting
				if _, err := call(ctx, cc, unary, grpc.WaitForReady(true)); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// gRFC A50 over real connections: a backend that fails every RPC is ejected,
// and gets RPCs again when it has recovered.
func TestOutlierIsEjectedAndReturns(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	good, bad := testutils.StartBackend(t, "good"), testutils.StartBackend(t, "bad")
	bad.Fail(status.Error(codes.Internal, "broken"))
	const name = "outliers"
	cluster := xdsmsg.EDSCluster(name, "")
	cluster.OutlierDetection = &clusterpb.OutlierDetection{
		Interval:                       durationpb.New(50 * time.Millisecond),
		BaseEjectionTime:               durationpb.New(500 * time.Millisecond),
		MaxEjectionTime:                durationpb.New(500 * time.Millisecond),
		MaxEjectionPercent:             wrapperspb.UInt32(50),
		EnforcingSuccessRate:           wrapperspb.UInt32(0),
		EnforcingFailurePercentage:     wrapperspb.UInt32(100),
		FailurePercentageMinimumHosts:  wrapperspb.UInt32(1),
		FailurePercentageRequestVolume: wrapperspb.UInt32(1),
	}
	m.set(append(chain(service, xdsmsg.PrefixRoute("", name)), cluster, xdsmsg.SimpleEndpoints(name, good.Addr(), bad.Addr()))...)
	cc := m.dial("xds:///" + service)
	ctx := testutils.Context(t)
	// until makes RPCs until 20 in a row were answered as wanted.
	until := func(what string, wanted func(id string, err error) bool) {
		t.Helper()
		for row := 0; row < 20; row++ {
			id, err := call(ctx, cc, unary, grpc.WaitForReady(true))
			if ctx.Err() != nil {
				t.Fatalf("never: %s", what)
			}
			if !wanted(id, err) {
				row = -1
			}
		}
	}
	until("all RPCs succeed", func(_ string, err error) bool { return err == nil })
	bad.Fail(nil)
	seen := false
	until("RPCs to both succeed", func(id string, err error) bool {
		seen = seen || id == bad.ID()
		return err == nil && seen
	})
}
