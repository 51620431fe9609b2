package e2e_test

import (
	"fmt"
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/testutils"
)

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

// gRFC A42, "Hash Policies": RPCs of which the policies make one hash go to one
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
		parallel(t, tc.name, func(t *testing.T) {
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

// When an endpoint goes, the keys that were its own go elsewhere and no other key
// moves: 1/n of them on average over the endpoints. When it is back, so are they.
// The ring has 7 entries for each endpoint, be they 8 or 7 (gRFC A42, "the ring").
func TestOnlyTheKeysOfTheEndpointThatGoesMove(t *testing.T) {
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
