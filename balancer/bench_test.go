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
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/pmap"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

func clusterName(i int) string {
	return fmt.Sprintf("outbound|8080||service-%05d.default.svc.cluster.local", i)
}

// manyClusters returns n clusters of 10 endpoints each.
func manyClusters(n int) map[string]*balancer.ClusterState {
	clusters := make(map[string]*balancer.ClusterState, n)
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

// readyPicker returns the picker of a tree of n clusters, one of which is a
// bigCluster that is connected, and the context of an RPC to it.
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
	if err := tr.CC.Await(ctx, connectivity.Ready); err != nil {
		tb.Fatal(err)
	}
	d := &decision.Decision{Context: context.Background(), Version: 1, Cluster: big, Extra: &decision.Extra{RPC: hash(7)}}
	// A ring connects the endpoint of the hash when it is asked for it.
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

// pickAndEnd is all that an RPC asks of the picker.
func pickAndEnd(p grpcbalancer.Picker, info grpcbalancer.PickInfo) error {
	result, err := p.Pick(info)
	if err == nil {
		result.Done(grpcbalancer.DoneInfo{BytesSent: true, BytesReceived: true})
	}
	return err
}

func TestPickThroughTheWholeTreeAllocatesNothing(t *testing.T) {
	picker, ctx := readyPicker(t, 1)
	info := grpcbalancer.PickInfo{Ctx: ctx}
	n := 1.0
	// While the rest of the 100 endpoints connects, that allocates.
	for range 20 {
		n = min(n, testing.AllocsPerRun(1000, func() {
			if err := pickAndEnd(picker, info); err != nil {
				t.Fatal(err)
			}
		}))
	}
	if n != 0 {
		t.Errorf("a pick makes %v allocations", n)
	}
}

// BenchmarkPick is root → cluster → priority → locality → round_robin →
// pick_first, with 100 endpoints.
func BenchmarkPick(b *testing.B) {
	for _, n := range []int{1, 1000, 10000} {
		b.Run(fmt.Sprintf("clusters=%d", n), func(b *testing.B) {
			picker, ctx := readyPicker(b, n)
			info := grpcbalancer.PickInfo{Ctx: ctx}
			b.ReportAllocs()
			for b.Loop() {
				if err := pickAndEnd(picker, info); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func ringHash(c *xdsresource.Cluster) {
	c.LBPolicy, c.AcrossLocalities = xdsresource.PolicyRingHash, true
}

// BenchmarkPickByHash is root → cluster → priority → ring_hash → pick_first,
// with 100 endpoints.
func BenchmarkPickByHash(b *testing.B) {
	picker, ctx := readyPicker(b, 1, ringHash)
	info := grpcbalancer.PickInfo{Ctx: ctx}
	b.ReportAllocs()
	for b.Loop() {
		if err := pickAndEnd(picker, info); err != nil {
			b.Fatal(err)
		}
	}
}

func TestPickByHashAllocatesNothing(t *testing.T) {
	picker, ctx := readyPicker(t, 1, ringHash)
	info := grpcbalancer.PickInfo{Ctx: ctx}
	if n := testing.AllocsPerRun(1000, func() {
		if err := pickAndEnd(picker, info); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("a pick makes %v allocations", n)
	}
}

func BenchmarkPickParallel(b *testing.B) {
	picker, ctx := readyPicker(b, 1)
	info := grpcbalancer.PickInfo{Ctx: ctx}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := pickAndEnd(picker, info); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// discard is a ClientConn that keeps nothing of what it is told.
type discard struct{ *lbtest.ClientConn }

func (discard) UpdateState(grpcbalancer.State) {}

// BenchmarkUpdate is an update that changes the endpoints of one cluster.
func BenchmarkUpdate(b *testing.B) {
	for _, n := range []int{1, 1000, 10000} {
		for _, inUse := range []bool{false, true} {
			b.Run(fmt.Sprintf("clusters=%d/inUse=%v", n, inUse), func(b *testing.B) {
				policy := grpcbalancer.Get(balancer.Name).Build(
					discard{lbtest.NewClientConn(lbtest.NewNetwork())}, grpcbalancer.BuildOptions{})
				defer policy.Close()
				clusters := manyClusters(n)
				name := clusterName(0)
				base := changed(pmap.Map[*balancer.ClusterState]{}, clusters)
				states := [2]grpcresolver.State{}
				for i, addr := range []string{"10.0.0.200:8080", "10.0.0.201:8080"} {
					c := *clusters[name]
					e := *c.Endpoints
					e.Localities = append([]xdsresource.Locality(nil), e.Localities...)
					e.Localities[0].Endpoints = append(
						[]xdsresource.Endpoint{{Address: addr, Weight: 1}}, e.Localities[0].Endpoints...)
					c.Endpoints = &e
					states[i] = balancer.SetState(grpcresolver.State{}, &balancer.State{
						Version: uint64(i + 1), Default: []string{name},
						Clusters: changed(base, map[string]*balancer.ClusterState{name: &c}),
					})
				}
				policy.UpdateClientConnState(grpcbalancer.ClientConnState{ResolverState: states[0]})
				if inUse {
					policy.ExitIdle()
				}
				b.ReportAllocs()
				for i := 1; b.Loop(); i++ {
					policy.UpdateClientConnState(grpcbalancer.ClientConnState{ResolverState: states[i%2]})
				}
			})
		}
	}
}

// What the tree itself keeps of a cluster that no RPC asked for; the resources
// are the resolver's.
func TestIdleClusterIsSmall(t *testing.T) {
	const n, limit = 10000, 1024
	state := &balancer.State{Version: 1, Clusters: changed(pmap.Map[*balancer.ClusterState]{}, manyClusters(n))}
	policy := grpcbalancer.Get(balancer.Name).Build(
		discard{lbtest.NewClientConn(lbtest.NewNetwork())}, grpcbalancer.BuildOptions{})
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
