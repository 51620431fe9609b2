package balancer_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	grpcbalancer "google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	grpcresolver "google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/balancer"
	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	_ "github.com/dynxds/dynxds/balancer/rls"
	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/internal/pmap"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

func clusterName(i int) string {
	return fmt.Sprintf("outbound|8080||service-%05d.default.svc.cluster.local", i)
}

// manyClusters returns n clusters of 10 endpoints each.
func manyClusters(n int) states {
	clusters := make(states, n)
	for i := range n {
		var addrs []string
		for j := range 10 {
			addrs = append(addrs, fmt.Sprintf("10.%d.%d.%d:8080", i/256, i%256, j))
		}
		clusters[clusterName(i)] = serving(addrs...)
	}
	return clusters
}

// bigCluster has 100 endpoints in two localities.
func bigCluster() *balancer.ClusterState {
	c := serving("10.0.0.0:8080")
	var localities []xdsresource.Locality
	for zone, weight := range []uint32{90, 10} {
		l := xdsresource.Locality{ID: xdsresource.LocalityID{Zone: fmt.Sprint(zone)}, Weight: weight}
		for i := range 50 {
			l.Endpoints = append(l.Endpoints, xdsresource.Endpoint{Address: fmt.Sprintf("10.0.%d.%d:8080", zone, i), Weight: 1})
		}
		localities = append(localities, l)
	}
	c.Endpoints.Localities = localities
	return c
}

// readyPicker returns the picker of a tree of n clusters, one of which is a connected
// bigCluster, and the context of an RPC to it.
func readyPicker(tb testing.TB, n int, edits ...func(*xdsresource.Cluster)) (grpcbalancer.Picker, context.Context) {
	tb.Helper()
	tr := newTree(tb)
	big := clusterName(n) // as long as the others', as names are in practice
	clusters := manyClusters(n - 1)
	clusters[big] = bigCluster()
	for _, edit := range edits {
		edit(clusters[big].Cluster)
	}
	tr.update(clusters, func(s *balancer.State) { s.Default = []string{big} })
	tr.policy.ExitIdle()
	ctx := testContext(tb)
	xdstest.NoError(tb, tr.CC.Await(ctx, connectivity.Ready))
	d := &decision.Decision{Context: context.Background(), Version: 1, Cluster: big, Extra: &decision.Extra{RPC: hash(7)}}
	if clusters[big].Cluster.Sessions.Statuses != 0 {
		d.Extra.HostOverride = &httpfilter.HostOverride{Addresses: []string{"10.0.0.0:8080"}}
	}
	// A ring connects the endpoint of the hash when an RPC needs it.
	for {
		if err := pickAndEnd(tr.CC.State().Picker, grpcbalancer.PickInfo{Ctx: d}); err == nil {
			break
		}
		if ctx.Err() != nil {
			tb.Fatal("the endpoint of the hash does not connect")
		}
		runtime.Gosched()
	}
	return tr.CC.State().Picker, context.WithValue(d, wrapped{}, "as gRPC wraps the context of an RPC")
}

type hash uint64

func (hash) Origin() (context.Context, string, string) { return context.Background(), "", "" }

func (h hash) Hash() (uint64, bool) { return uint64(h), true }

type wrapped struct{}

// pickAndEnd is an RPC as the picker sees it.
func pickAndEnd(p grpcbalancer.Picker, info grpcbalancer.PickInfo) error {
	result, err := p.Pick(info)
	if err == nil {
		result.Done(grpcbalancer.DoneInfo{BytesSent: true, BytesReceived: true})
	}
	return err
}

// reported has the load of a cluster counted by s.
func reported(s *load.Store) func(*xdsresource.Cluster) {
	return func(c *xdsresource.Cluster) {
		c.Load = &xdsresource.LoadReporting{Loads: s, Metrics: &load.Metrics{load.CPU: true}}
	}
}

func ringHash(c *xdsresource.Cluster) {
	c.LBPolicy, c.AcrossLocalities = xdsresource.PolicyRingHash, true
}

func maglev(c *xdsresource.Cluster) {
	c.LBPolicy, c.AcrossLocalities = xdsresource.PolicyMaglev, true
}

func slowStart(c *xdsresource.Cluster) {
	c.LBPolicy, c.LBConfig = xdsresource.PolicySlowStart, `{"windowNanos":60000000000}`
}

func sticky(c *xdsresource.Cluster) { c.Sessions = xdsresource.DefaultSessions }

// A pick through the whole tree allocates nothing, also if it is counted for load reports.
func TestPickAllocatesNothing(t *testing.T) {
	store := load.NewStore(nil)
	for _, tc := range []struct {
		name string
		edit func(*xdsresource.Cluster)
	}{
		// What the last one counts is looked at below.
		{"round robin", func(*xdsresource.Cluster) {}}, {"ring hash", ringHash}, {"Maglev", maglev},
		{"slow start", slowStart}, {"for a session", sticky}, {"with load reports", reported(store)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			picker, ctx := readyPicker(t, 1, tc.edit)
			info := grpcbalancer.PickInfo{Ctx: ctx}
			n := 1.0
			// While the rest of the 100 endpoints connects, that allocates.
			for range 20 {
				store.Take(nil)
				n = min(n, testing.AllocsPerRun(1000, func() {
					if err := pickAndEnd(picker, info); err != nil {
						t.Fatal(err)
					}
				}))
			}
			xdstest.Equal(t, "allocations of a pick", 0, n)
		})
	}
	var total uint64
	for _, r := range store.Take(nil) {
		for _, l := range r.Localities {
			total += l.Succeeded
		}
	}
	if total != 1001 { // since the last Take; AllocsPerRun runs once before it counts
		t.Errorf("%d RPCs were counted for load reports, want 1001", total)
	}
}

// BenchmarkPick is a pick through the whole tree of policies, with 100 endpoints.
func BenchmarkPick(b *testing.B) {
	for _, tc := range []struct {
		name     string
		clusters int
		edit     func(*xdsresource.Cluster)
	}{
		{"clusters=1", 1, func(*xdsresource.Cluster) {}},
		{"clusters=1000", 1000, func(*xdsresource.Cluster) {}},
		{"clusters=10000", 10000, func(*xdsresource.Cluster) {}},
		{"ringhash", 1, ringHash},
		{"maglev", 1, maglev},
		{"slowstart", 1, slowStart},
		{"lrs", 1, reported(load.NewStore(nil))},
	} {
		picker, ctx := readyPicker(b, tc.clusters, tc.edit)
		info := grpcbalancer.PickInfo{Ctx: ctx}
		b.Run(tc.name+"/sequential", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := pickAndEnd(picker, info); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(tc.name+"/parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := pickAndEnd(picker, info); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// discard is a ClientConn that drops all updates.
type discard struct{ *lbtest.ClientConn }

func (discard) UpdateState(grpcbalancer.State) {}

// BenchmarkUpdate is an update that changes the endpoints of one cluster.
func BenchmarkUpdate(b *testing.B) {
	for _, n := range []int{1, 1000, 10000} {
		for _, inUse := range []bool{false, true} {
			b.Run(fmt.Sprintf("clusters=%d/inUse=%v", n, inUse), func(b *testing.B) {
				policy := grpcbalancer.Get(balancer.Name).Build(
					discard{lbtest.NewClientConn()}, grpcbalancer.BuildOptions{})
				defer policy.Close()
				clusters := manyClusters(n)
				name := clusterName(0)
				base := changed(pmap.Map[*balancer.ClusterState]{}, clusters)
				updates := [2]grpcresolver.State{}
				for i, addr := range []string{"10.0.0.200:8080", "10.0.0.201:8080"} {
					c := *clusters[name]
					e := *c.Endpoints
					e.Localities = append([]xdsresource.Locality(nil), e.Localities...)
					e.Localities[0].Endpoints = append(
						[]xdsresource.Endpoint{{Address: addr, Weight: 1}}, e.Localities[0].Endpoints...)
					c.Endpoints = &e
					updates[i] = balancer.SetState(grpcresolver.State{}, &balancer.State{
						Version: uint64(i + 1), Default: []string{name},
						Clusters: changed(base, states{name: &c}),
					})
				}
				policy.UpdateClientConnState(grpcbalancer.ClientConnState{ResolverState: updates[0]})
				if inUse {
					policy.ExitIdle()
				}
				b.ReportAllocs()
				for i := 1; b.Loop(); i++ {
					policy.UpdateClientConnState(grpcbalancer.ClientConnState{ResolverState: updates[i%2]})
				}
			})
		}
	}
}

// An idle cluster costs the tree little; its resources are the resolver's.
func TestIdleClusterIsSmall(t *testing.T) {
	const n, limit = 10000, 1024
	state := &balancer.State{Version: 1, Clusters: changed(pmap.Map[*balancer.ClusterState]{}, manyClusters(n))}
	policy := grpcbalancer.Get(balancer.Name).Build(
		discard{lbtest.NewClientConn()}, grpcbalancer.BuildOptions{})
	defer policy.Close()
	before := heap()
	goroutines := runtime.NumGoroutine()
	policy.UpdateClientConnState(grpcbalancer.ClientConnState{
		ResolverState: balancer.SetState(grpcresolver.State{}, state),
	})
	perCluster := (heap() - before) / n
	t.Logf("%d bytes of heap per idle cluster", perCluster)
	if perCluster > limit {
		t.Errorf("an idle cluster takes %d bytes of heap, want at most %d", perCluster, limit)
	}
	if more := runtime.NumGoroutine() - goroutines; more > 5 {
		t.Errorf("%d idle clusters have %d goroutines", n, more)
	}
	runtime.KeepAlive(state)
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
