package e2e_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	wrrpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/client_side_weighted_round_robin/v3"
	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/orca"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/balancer"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
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
	inOneWay(t, "it is of the share of RPCs that are dropped")
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
		xdstest.Parallel(t, policy.String(), func(t *testing.T) {
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
				backendFor(ctx, t, cc, unary)
			}
			for a.Count() == 0 || b.Count() == 0 { // one may have been connecting
				backendFor(ctx, t, cc, unary)
			}
		})
	}
}

// ejectFailing is outlier detection that ejects an endpoint all of whose RPCs fail, from the first one on.
func ejectFailing(interval, ejection time.Duration, maxPercent uint32) *clusterpb.OutlierDetection {
	return &clusterpb.OutlierDetection{
		Interval:                       durationpb.New(interval),
		BaseEjectionTime:               durationpb.New(ejection),
		MaxEjectionTime:                durationpb.New(ejection),
		MaxEjectionPercent:             wrapperspb.UInt32(maxPercent),
		EnforcingSuccessRate:           wrapperspb.UInt32(0),
		EnforcingFailurePercentage:     wrapperspb.UInt32(100),
		FailurePercentageMinimumHosts:  wrapperspb.UInt32(1),
		FailurePercentageRequestVolume: wrapperspb.UInt32(1),
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
	cluster.OutlierDetection = ejectFailing(50*time.Millisecond, 500*time.Millisecond, 50)
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
	inOneWay(t, "the weights are in the answers of the backends")
	t.Parallel()
	for _, lrs := range []bool{false, true} {
		xdstest.Parallel(t, fmt.Sprintf("lrs=%v", lrs), func(t *testing.T) {
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

// hashed is a route of all RPCs to the cluster, with hash policies.
func hashed(cluster string, policies ...*routepb.RouteAction_HashPolicy) *routepb.Route {
	route := toCluster(cluster)
	route.GetRoute().HashPolicy = policies
	return route
}

func hashOfHeader(name string) *routepb.RouteAction_HashPolicy {
	return &routepb.RouteAction_HashPolicy{PolicySpecifier: &routepb.RouteAction_HashPolicy_Header_{
		Header: &routepb.RouteAction_HashPolicy_Header{HeaderName: name},
	}}
}

func hashOfChannel() *routepb.RouteAction_HashPolicy {
	return &routepb.RouteAction_HashPolicy{PolicySpecifier: &routepb.RouteAction_HashPolicy_FilterState_{
		FilterState: &routepb.RouteAction_HashPolicy_FilterState{Key: "io.grpc.channel_id"},
	}}
}

// onRing is a cluster of the policy RING_HASH. The places of the backends on the
// ring follow from their ids (gRFC A76, "hash_key") and the size, so they are the
// same in each run.
func onRing(name string, size uint64, backends ...*testutils.Backend) []proto.Message {
	cluster := xdsmsg.EDSCluster(name, "")
	cluster.LbPolicy = clusterpb.Cluster_RING_HASH
	cluster.LbConfig = &clusterpb.Cluster_RingHashLbConfig_{RingHashLbConfig: &clusterpb.Cluster_RingHashLbConfig{
		MinimumRingSize: wrapperspb.UInt64(size),
	}}
	return []proto.Message{cluster, keyedEndpoints(name, backends...)}
}

func keyedEndpoints(name string, backends ...*testutils.Backend) *endpointpb.ClusterLoadAssignment {
	addrs := make([]string, len(backends))
	for i, b := range backends {
		addrs[i] = b.Addr()
	}
	m := xdsmsg.SimpleEndpoints(name, addrs...)
	for i, e := range m.GetEndpoints()[0].GetLbEndpoints() {
		key := &structpb.Struct{Fields: map[string]*structpb.Value{"hash_key": structpb.NewStringValue(backends[i].ID())}}
		e.Metadata = &corepb.Metadata{FilterMetadata: map[string]*structpb.Struct{"envoy.lb": key}}
	}
	return m
}

// gRFC A42, "Hash Policies": RPCs with the same hash go to one
// endpoint, whatever their kind, from the first one on.
func TestHashPoliciesMakeRPCsSticky(t *testing.T) {
	t.Parallel()
	tenant := hashOfHeader("user")
	tenant.GetHeader().RegexRewrite = &matcherpb.RegexMatchAndSubstitute{
		Pattern: &matcherpb.RegexMatcher{Regex: `^(.*)@.*$`}, Substitution: `\1`,
	}
	first := hashOfHeader("first")
	first.Terminal = true
	sequence := func(format string) (all [][]string) {
		for i := range 24 {
			all = append(all, []string{"user", fmt.Sprintf(format, i)})
		}
		return all
	}
	for _, tc := range []struct {
		name     string
		policies []*routepb.RouteAction_HashPolicy
		// together are RPCs that go to one backend, apart are RPCs that do not
		// all go to one.
		together, apart [][]string
	}{
		{"header", []*routepb.RouteAction_HashPolicy{hashOfHeader("user")}, [][]string{{"user", "u"}, {"user", "u", "other", "x"}}, sequence("u%d")},
		{"header of several values", []*routepb.RouteAction_HashPolicy{hashOfHeader("user")}, [][]string{{"user", "a", "user", "b"}, {"user", "a,b"}}, sequence("a,%d")},
		{"header with regex_rewrite", []*routepb.RouteAction_HashPolicy{tenant}, sequence("acme@%d"), sequence("%d@acme")},
		{"channel", []*routepb.RouteAction_HashPolicy{hashOfChannel()}, sequence("u%d"), nil},
		{
			"terminal", []*routepb.RouteAction_HashPolicy{first, hashOfHeader("user")},
			[][]string{{"first", "f", "user", "1"}, {"first", "f", "user", "2"}, {"first", "f", "user", "3"}, {"first", "f"}},
			sequence("u%d"), // without "first" the policy behind counts
		},
		{
			"not terminal", []*routepb.RouteAction_HashPolicy{hashOfHeader("first"), hashOfHeader("user")},
			[][]string{{"first", "f", "user", "1"}}, sequence("u%d"),
		},
	} {
		xdstest.Parallel(t, tc.name, func(t *testing.T) {
			m := newMesh(t)
			var backends []*testutils.Backend
			for i := range 4 {
				backends = append(backends, testutils.StartBackend(t, fmt.Sprintf("backend-%d", i)))
			}
			m.set(append(chain(service, hashed("c", tc.policies...)), onRing("c", 64, backends...)...)...)
			cc := m.dial("xds:///" + service)
			ctx := testutils.Context(t)
			want := ""
			for i, md := range tc.together {
				for _, k := range kinds {
					got := backendFor(ctx, t, cc, k, md...)
					if want == "" {
						want = got
					}
					if got != want {
						t.Errorf("%s RPC %d, with %v, went to %s, others to %s", k, i, md, got, want)
					}
				}
			}
			reached := map[string]bool{}
			for _, md := range tc.apart {
				reached[backendFor(ctx, t, cc, unary, md...)] = true
			}
			if len(tc.apart) > 0 && len(reached) < 2 {
				t.Errorf("all of %v went to one backend", tc.apart)
			}
		})
	}
}

// gRFC A42, "filter_state": the hash is that of the channel, so that channels spread.
func TestChannelsSpreadByTheirIDs(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	a, b := testutils.StartBackend(t, "a"), testutils.StartBackend(t, "b")
	m.set(append(chain(service, hashed("c", hashOfChannel())), onRing("c", 64, a, b)...)...)
	ctx := testutils.Context(t)
	// With the less lucky backend on a quarter of the ring, that 200 channels all
	// go to the other one is a chance of 1 in 10^25; most runs need three.
	reached := map[string]bool{}
	for range 200 {
		cc := m.dial("xds:///" + service)
		reached[backendFor(ctx, t, cc, unary)] = true
		cc.Close()
		if len(reached) == 2 {
			return
		}
	}
	t.Errorf("200 channels went to %v alone", reached)
}

// When an endpoint is removed, its keys move to others and no other key moves: 1/n of them
// on average over the endpoints. When it is added again, they return.
// The ring has 7 entries for each endpoint, be they 8 or 7 (gRFC A42, "the ring").
func TestOnlyTheKeysOfARemovedEndpointMove(t *testing.T) {
	t.Parallel()
	const n, size, keys = 8, 49, 160
	m := newMesh(t)
	var backends []*testutils.Backend
	for i := range n {
		backends = append(backends, testutils.StartBackend(t, fmt.Sprintf("backend-%d", i)))
	}
	m.set(append(chain(service, hashed("c", hashOfHeader("key"))), onRing("c", size, backends...)...)...)
	cc := m.dial("xds:///" + service)
	ctx := testutils.Context(t)
	ask := func(key int) string { return backendFor(ctx, t, cc, unary, "key", fmt.Sprint(key)) }
	home := make([]string, keys)
	keyOf := map[string]int{}
	for key := range keys {
		home[key] = ask(key)
		keyOf[home[key]] = key
	}
	if len(keyOf) != n {
		t.Fatalf("%d keys went to %d of %d backends", keys, len(keyOf), n)
	}
	total := 0
	for i, gone := range backends {
		var rest []*testutils.Backend
		rest = append(append(rest, backends[:i]...), backends[i+1:]...)
		m.set(keyedEndpoints("c", rest...))
		for ask(keyOf[gone.ID()]) == gone.ID() {
		}
		moved := 0
		for key := range keys {
			switch now := ask(key); {
			case now == home[key]:
			case home[key] == gone.ID():
				moved++
			default:
				t.Errorf("without %s, key %d moved from %s to %s, and both stay", gone.ID(), key, home[key], now)
			}
		}
		total += moved
		m.set(keyedEndpoints("c", backends...))
		for ask(keyOf[gone.ID()]) != gone.ID() {
		}
	}
	if total != keys {
		t.Errorf("%d times a key moved when each of %d endpoints went once, want %d: each key once", total, n, keys)
	}
	for key := range keys {
		if now := ask(key); now != home[key] {
			t.Errorf("with all endpoints back, key %d is at %s, and was at %s", key, now, home[key])
		}
	}
}
