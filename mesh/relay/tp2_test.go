package relay_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/relay"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

const variants = "dynamic_parameter_constraints"

// shard makes a cluster whose content has the shard.
func shard(n int) *clusterpb.Cluster {
	c := xdsmsg.EDSCluster("c", "")
	c.AltStatName = fmt.Sprint("shard ", n)
	return c
}

// mustBe checks which shard a client got.
func mustBe(t *testing.T, r *discoverypb.DeltaDiscoveryResponse, n int) {
	t.Helper()
	res, got := only(t, r, "c"), new(clusterpb.Cluster)
	xdstest.NoError(t, res.GetResource().UnmarshalTo(got))
	if want := fmt.Sprint("shard ", n); got.GetAltStatName() != want || res.GetDynamicParameters()["shard"] != fmt.Sprint(n) {
		t.Fatalf("got %v, want %q", res, want)
	}
}

// shardClient opens a delta stream that subscribes with a constraint, and gets a shard.
func (r *rig) shardClient(id, constraint string, want int) *deltaStream {
	r.t.Helper()
	d := r.delta()
	subscribeTo(d, node(id), clusterType, []string{constraint}, "c")
	mustBe(r.t, d.receive(), want)
	return d
}

// setShards makes the control plane have variants of the Cluster "c".
func (r *rig) setShards(shards ...int) {
	r.t.Helper()
	for _, n := range shards {
		r.up.SetVariant(r.t, map[string]string{"shard": fmt.Sprint(n)}, shard(n))
	}
}

// sawNode reports whether the control plane was sent a request of a node.
func (r *rig) sawNode(id string) bool {
	return slices.ContainsFunc(r.up.Requests(), func(req xdstest.Request) bool { return req.Node.GetId() == id })
}

// "Caching xDS proxies, unlike "leaf" clients, will need to track multiple variants of each resource,
// since a given caching proxy may be serving clients that need different variants" (xRFC TP2,
// "Proposal").
func TestVariantsAreTracked(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, features ...string) {
		r := newRig(t, nil, append(features, variants)...)
		r.setShards(0, 1, 2)
		clients := make([]*deltaStream, 6)
		for i := range clients {
			clients[i] = r.shardClient(fmt.Sprint(i), fmt.Sprint("shard=", i%3), i%3)
		}
		if s := r.Stats(); s.Subscriptions != 3 || s.Groups != 1 || r.up.Attempts() != 1 {
			t.Errorf("got %+v, want a subscription for each variant, on one stream", s)
		}
		// A change of one variant reaches those who have it.
		changed := shard(1)
		changed.AltStatName = "changed"
		r.up.SetVariant(t, map[string]string{"shard": "1"}, changed)
		for _, i := range []int{1, 4} {
			wantOnly(clients[i], "c")
		}
		r.up.SetVariant(t, map[string]string{"shard": "0"}, changed)
		wantOnly(clients[0], "c")
	})
}

// "Caches (both on clients and on caching xDS proxies) must attempt to fetch a larger value even if
// they already have a smaller matching value already present in the cache." (xRFC TP2, "Matching
// Behavior and Best Practices")
func TestLargerValueIsFetched(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, features ...string) {
		r := newRig(t, nil, append(features, variants)...)
		r.setShards(3)
		r.shardClient("a", "shard=3", 3)
		r.setShards(5)
		r.shardClient("b", "shard=0-5", 5) // and nothing before it
	})
}

// "The cache must attempt to fetch a resource from the authoritative server with that constraint
// before falling back to using the one it already has cached": while the server is away, it has.
func TestSmallerValueIsAFallback(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, features ...string) {
		r := newRig(t, nil, append(features, variants)...)
		r.setShards(3)
		r.shardClient("a", "shard=3", 3)
		r.up.Stop()
		r.awaitUnreachable()
		b := r.shardClient("b", "shard=0-5", 3)
		r.setShards(5)
		xdstest.NoError(t, r.up.Restart())
		mustBe(t, b.receive(), 5)
	})
}

// A variant that the constraints spell out is the preferred one, and is sent at once: here while
// upstream reads no request.
func TestVariantThatIsSpelledOutIsSentAtOnce(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, features ...string) {
		r := newRig(t, nil, append(features, variants)...)
		r.setShards(5)
		r.shardClient("a", "shard=0-5", 5)
		r.up.MustWait(r.ctx, t, xdstest.ACKOf(clusterType))
		resume := r.up.StallReads()
		b := r.shardClient("b", "shard=5", 5)
		resume()
		// Upstream is asked all the same, and its answer replaces that.
		r.up.Update(t, func(tx *controlplane.Tx) {
			tx.SetVariantError(clusterType, "c", map[string]string{"shard": "5"}, status.New(codes.Internal, "broken"))
		})
		wantError(b, "c", codes.Internal)
	})
}

// The resource of DPDS "is always non-cacheable" (xRFC TP2, "Non-Cacheability of DPDS"): each client
// gets its own, by its own node, on a stream that ends with its own.
func TestDPDSIsNotShared(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, features ...string) {
		r := newRig(t, nil, append(features, variants)...)
		r.up.SetDPDS(t, "map", func(n *corepb.Node) (dynparam.ByType, error) {
			return dynparam.NewByType(map[string]dynparam.Constraints{"envoy.config.cluster.v3.Cluster": xdstest.Constraints("id=" + n.GetId())})
		})
		r.up.SetVariant(t, map[string]string{"id": "a"}, xdsmsg.EDSCluster("c", "a"))
		clients := map[string]*deltaStream{}
		for _, id := range []string{"a", "b"} {
			d := r.delta()
			clients[id] = d
			subscribe(d, node(id), dynparam.MapTypeURL, "map")
			got := wantOnly(d, "map")
			want, err := dynparam.NewByType(map[string]dynparam.Constraints{"envoy.config.cluster.v3.Cluster": xdstest.Constraints("id=" + id)})
			xdstest.NoError(t, err)
			if string(got.GetResource().GetValue()) != mapBytes(t, want) || !got.GetCacheControl().GetDoNotCache() {
				t.Errorf("%s got %v, want %v, not to be cached", id, got, want.ToProto())
			}
		}
		if !r.sawNode("a") || !r.sawNode("b") || r.sawNode("relay") {
			t.Errorf("the requests upstream are %v, want those of a and b", r.up.Requests())
		}
		// What is cacheable is shared.
		for id, d := range clients {
			subscribeTo(d, nil, clusterType, []string{"id=a"}, "c")
			wantOnly(d, "c")
			_ = id
		}
		if got := r.up.Attempts(); got != 3 {
			t.Errorf("got %d streams upstream, want two for DPDS and one for the rest", got)
		}
		clients["b"].stop()
		xdstest.NoError(t, r.up.WaitOpen(r.ctx, 2))
	})
}

// mapBytes is the resource of DPDS as controlplane writes it.
func mapBytes(t *testing.T, c dynparam.ByType) string {
	t.Helper()
	store := controlplane.NewStore()
	_, err := store.Update(func(tx *controlplane.Tx) { tx.SetNamed("map", nil, c.ToProto()) })
	xdstest.NoError(t, err)
	return string(store.Resources(dynparam.MapTypeURL)[0].Any().GetValue())
}

// Any resource may be marked as not to be cached. The first answer, for the node of the group, is for
// nobody.
func TestDoNotCache(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *relay.Options) { o.Linger = time.Hour }, "delta")
	r.rewrap(func(m *discoverypb.Resource) { m.CacheControl = &discoverypb.Resource_CacheControl{DoNotCache: true} })
	r.up.Set(t, xdsmsg.EDSCluster("c", ""))
	a, b := r.delta(), r.delta()
	for id, d := range map[string]*deltaStream{"a": a, "b": b} {
		subscribe(d, node(id), clusterType, "c")
		if got := wantOnly(d, "c"); !got.GetCacheControl().GetDoNotCache() {
			t.Errorf("%s got %v, want it not to be cached", id, got)
		}
	}
	if !r.sawNode("a") || !r.sawNode("b") {
		t.Errorf("the requests upstream are %v, want some of a and b", r.up.Requests())
	}
	b.stop()
	a.stop()
	r.await("nothing of it is kept", func(s relay.Stats) bool { return s.Subscriptions == 0 })
}

// A group is one identity upstream, so a denial is for all its clients: however many subscribe, there is one
// subscription on one stream. All get the resource when the control plane changes its mind.
func TestDenialsAreShared(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, features ...string) {
		r := newRig(t, nil, append(features, variants)...)
		deny := func() {
			r.up.Update(t, func(tx *controlplane.Tx) {
				tx.SetError(clusterType, "c", status.New(codes.PermissionDenied, "not for you"))
			})
		}
		deny()
		clients := make([]*deltaStream, 20)
		for i := range clients {
			clients[i] = r.client(node(fmt.Sprint(i)), "c")
			if got := wantError(clients[i], "c", codes.PermissionDenied).GetMessage(); got != "not for you" {
				t.Fatalf("client %d got %q, want the denial", i, got)
			}
		}
		if got := r.Stats(); got.Upstreams != 1 || got.Subscriptions != 1 || r.up.Attempts() != 1 {
			t.Errorf("got %+v and %d streams upstream, want one of each", got, r.up.Attempts())
		}
		r.up.Set(t, xdsmsg.EDSCluster("c", ""))
		for _, d := range clients {
			wantOnly(d, "c")
		}
		deny()
		for _, d := range clients {
			wantError(d, "c", codes.PermissionDenied)
		}
	})
}

// Glob collections are passed on with their members, variants and changes.
func TestCollections(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *relay.Options) { o.Linger = -1 }, "delta", variants)
	set := func(n, text string, params map[string]string) {
		c := xdsmsg.EDSCluster(member(n), "")
		c.AltStatName = text
		r.up.SetVariant(t, params, c)
	}
	set("a", "", map[string]string{"env": "prod"})
	set("b", "", map[string]string{"env": "test"})
	set("c", "", nil)
	all := func(d *deltaStream, n int) map[string]string {
		t.Helper()
		got := map[string]string{}
		for len(got) < n {
			for _, res := range d.receive().GetResources() {
				got[res.GetName()+res.GetDynamicParameters()["env"]] = res.GetVersion()
			}
		}
		return got
	}
	first, second := r.delta(), r.delta()
	subscribeTo(first, node("first"), clusterType, []string{"env=prod"}, member("*"))
	got := all(first, 2)
	if got[member("a")+"prod"] == "" || got[member("c")] == "" {
		t.Errorf("got %v, want a and c", got)
	}
	subscribeTo(second, node("second"), clusterType, []string{"env=test"}, member("*"))
	if got := all(second, 2); got[member("b")+"test"] == "" || got[member("c")] == "" {
		t.Errorf("got %v, want b and c", got)
	}
	set("c", "changed", nil)
	all(first, 1)
	all(second, 1)
	r.up.Delete(t, clusterType, member("c"))
	for _, d := range []*deltaStream{first, second} {
		resp := d.receive()
		if len(resp.GetRemovedResources())+len(resp.GetRemovedResourceNames()) == 0 {
			t.Errorf("got %v, want the removal of c", resp)
		}
	}
	second.stop()
	r.await("the members go with their collection", func(s relay.Stats) bool { return s.Cached == 1 && s.Subscriptions == 1 })
}

// Wildcard subscriptions, as Envoy's, are passed on over delta, to clients of either protocol.
func TestWildcards(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, "delta")
	r.up.Set(t, xdsmsg.EDSCluster("a", ""), xdsmsg.EDSCluster("b", ""))
	d, s := r.delta(), r.sotw()
	d.send(&discoverypb.DeltaDiscoveryRequest{Node: node("d"), TypeUrl: clusterType})
	got := map[string]string{}
	for len(got) < 2 {
		for _, res := range d.receive().GetResources() {
			got[res.GetName()] = res.GetVersion()
		}
	}
	if got["a"] != r.version(clusterType, "a") || got["b"] != r.version(clusterType, "b") {
		t.Errorf("got %v, want a and b with their versions", got)
	}
	s.send(&discoverypb.DiscoveryRequest{Node: node("s"), TypeUrl: clusterType})
	wantCount(s, 2)
	r.up.Set(t, xdsmsg.EDSCluster("c", ""))
	wantOnly(d, "c")
	wantCount(s, 3)
	r.up.Delete(t, clusterType, "a")
	wantRemoved(d, "a")
	wantCount(s, 2)
	if s := r.Stats(); s.Subscriptions != 1 || s.Cached != 2 {
		t.Errorf("got %+v, want one subscription upstream and two clusters", s)
	}
}

// A TTL is passed on, and so are the heartbeats that extend it; without these the resource expires.
func TestTTLs(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, "delta")
	const ttl = 2 * time.Second
	r.rewrap(func(m *discoverypb.Resource) { m.Ttl = durationpb.New(ttl) })
	r.up.Set(t, xdsmsg.EDSCluster("c", ""))
	d := r.client(node("a"), "c")
	first := wantOnly(d, "c")
	if first.GetTtl().AsDuration() != ttl {
		t.Errorf("got %v, want a TTL of %v", first, ttl)
	}
	r.heartbeat("c", first.GetVersion(), ttl)
	beat := wantOnly(d, "c")
	if beat.GetResource() != nil || beat.GetVersion() != first.GetVersion() || beat.GetTtl().AsDuration() != ttl {
		t.Errorf("got %v, want a heartbeat", beat)
	}
	r.up.Stop() // is no heartbeat
	wantRemoved(d, "c")
}

// The first request for a type on a stream decides whether a client subscribes to it by names or by
// locators (xRFC TP2, "API Changes"). One that began with names learns at once that its locators do not
// count, and nobody else is affected.
func TestLocatorsAfterNamesEndTheStream(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, features ...string) {
		r := newRig(t, nil, append(features, variants)...)
		r.setShards(0, 1, 2)
		other := r.shardClient("a", "shard=1", 1)

		mixed := r.subscriber("b", "c")
		subscribeTo(mixed, nil, clusterType, []string{"shard=1"}, "c")
		if _, err := mixed.Recv(); status.Code(err) != codes.InvalidArgument {
			t.Errorf("the stream ended with %v, want INVALID_ARGUMENT", err)
		}
		// The way out is another stream.
		r.shardClient("b", "shard=1", 1)
		subscribeTo(other, nil, clusterType, []string{"shard=2"}, "c")
		mustBe(t, other.receive(), 2)
	})
}
