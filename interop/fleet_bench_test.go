//go:build unix

package interop_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/stats"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/meshtest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// fleetSizes are how many clusters there are, and how many endpoints each has.
// Of 10,000 clusters each has one, since gRPC-Go's xds connects to all.
var fleetSizes = []struct{ clusters, endpoints int }{{1_000, 10}, {10_000, 1}}

// maxStart is how long a client may take to its first RPC. One that takes longer
// is not measured.
const maxStart = 40 * time.Second

// changesPerLoop is how many changes a run of a benchmark of their cost makes. To
// look whether a client is at rest costs it something, too.
const changesPerLoop = 10

// BenchmarkFleet is a client of a control plane with many clusters, one of which
// has RPCs, and changes among them.
func BenchmarkFleet(b *testing.B) {
	for _, size := range fleetSizes {
		b.Run(fmt.Sprintf("clusters=%d/endpoints=%d", size.clusters, size.endpoints), func(b *testing.B) {
			for _, peer := range []string{grpcGo, ours, oursOnDelta} {
				b.Run("peer="+peer, func(b *testing.B) { benchFleet(b, peer, size.clusters, size.endpoints) })
			}
		})
	}
}

func benchFleet(b *testing.B, peer string, clusters, endpoints int) {
	small := newFleet(b, 1, endpoints)
	one := startBenchClient(b, bootstrapOf(peer, small.server))
	_, _, base := one.dial(peer, 1, small.method(small.victim()))

	f := newFleet(b, clusters, endpoints)
	client := startBenchClient(b, bootstrapOf(peer, f.server))
	before, dialed, held := client.dial(peer, 1, f.method(f.victim()))
	if dialed.ElapsedUntilAnswer > int64(maxStart) {
		b.Skipf("no RPC was answered within %v", maxStart)
	}
	b.Run("hold", func(b *testing.B) {
		// What the process and the cluster that has RPCs take is in base.
		n := float64(clusters - 1)
		report(b, map[string]float64{
			"heap-B/cluster":         (float64(held.Heap) - float64(base.Heap)) / n,
			"stack-B/cluster":        (float64(held.Stacks) - float64(base.Stacks)) / n,
			"goroutines/cluster":     float64(held.Goroutines-base.Goroutines) / n,
			"connections":            float64(f.connections.Load()),
			"ms-until-the-first-RPC": float64(dialed.ElapsedUntilAnswer) / 1e6,
			"cpu-ms-until-at-rest":   float64((held.CPU - before.CPU).Microseconds()) / 1e3,
		})
	})
	for _, change := range f.changes() {
		b.Run("change="+change.name+"/cost", func(b *testing.B) { f.cost(b, peer, client, change) })
		b.Run("change="+change.name+"/delay", func(b *testing.B) { f.delay(b, client, change) })
	}
}

// fleet is a control plane and backends.
type fleet struct {
	server *meshtest.Server
	// sent counts the bytes of the control plane's responses.
	sent        atomic.Int64
	connections atomic.Int64
	clusters    int
	// first and second are the addresses of the backends of that name: the
	// endpoints of every cluster, and of what a change leads to.
	first, second []string
	// pushes counts the updates, moved chooses the kind of change.
	pushes int
	moved  map[string]bool
	// unchanged are all Clusters, as "none" sends them again.
	unchanged []*controlplane.Resource
}

const (
	firstBackend, secondBackend = "first", "second"
	// elsewhere is a cluster of the second backend alone.
	elsewhere = "elsewhere"
)

func newFleet(b *testing.B, clusters, endpoints int) *fleet {
	f := &fleet{clusters: clusters, moved: map[string]bool{}}
	f.server = meshtest.Start(b, meshtest.Options{
		GRPC: []grpc.ServerOption{grpc.StatsHandler(countSent{bytes: &f.sent}), grpc.MaxRecvMsgSize(64 << 20)},
	})
	f.server.Keep(20)
	f.first = f.backend(b, firstBackend, endpoints)
	f.second = f.backend(b, secondBackend, 1)
	f.server.Update(b, func(tx *controlplane.Tx) {
		tx.Set(listener("routes"), f.routes(f.name(f.victim())), xdsmsg.EDSCluster(elsewhere, ""), xdsmsg.SimpleEndpoints(elsewhere, f.second...))
		for i := range clusters {
			tx.Set(xdsmsg.EDSCluster(f.name(i), ""), xdsmsg.SimpleEndpoints(f.name(i), f.first...))
		}
	})
	return f
}

func (f *fleet) name(i int) string { return fmt.Sprintf("outbound|8080||service-%05d", i) }

func (f *fleet) method(i int) string { return fmt.Sprintf("/example.Service%05d/Method", i) }

// victim is the cluster that has RPCs and changes.
func (f *fleet) victim() int { return f.clusters / 2 }

// routes lead each method to its cluster, that of the victim to the given one.
func (f *fleet) routes(victim string) *routepb.RouteConfiguration {
	var table []*routepb.Route
	for i := range f.clusters {
		cluster := f.name(i)
		if i == f.victim() {
			cluster = victim
		}
		table = append(table, xdsmsg.PathRoute(f.method(i), cluster))
	}
	return xdsmsg.RouteConfig("routes", service, append(table,
		// So that both clusters stay known whichever the route leads to.
		xdsmsg.PathRoute("/example.Unused/Method", f.name(f.victim())), xdsmsg.PrefixRoute("/", elsewhere))...)
}

// fleetChange is a change that is made again and again, to and fro.
type fleetChange struct {
	name    string
	typeURL string
	// to makes the victim's RPCs go to the second backend, or to the first. It
	// is nil if nothing changes.
	to func(second bool) proto.Message
	// small is a change that needs no other connections, or one at most: what
	// they take is the same for all peers, and more than the rest.
	small func(second bool) proto.Message
}

func (f *fleet) changes() []fleetChange {
	victim := f.name(f.victim())
	endpoints := func(addrs []string) proto.Message { return xdsmsg.SimpleEndpoints(victim, addrs...) }
	routes := func(second bool) proto.Message {
		if second {
			return f.routes(elsewhere)
		}
		return f.routes(victim)
	}
	return []fleetChange{
		{"endpoints", xdsmsg.EndpointType, func(second bool) proto.Message {
			if second {
				return endpoints(f.second)
			}
			return endpoints(f.first)
		}, func(second bool) proto.Message {
			if second {
				return endpoints(slices.Concat(f.first, f.second))
			}
			return endpoints(f.first)
		}},
		{"cluster", xdsmsg.ClusterType, func(second bool) proto.Message {
			if second {
				return xdsmsg.EDSCluster(victim, elsewhere)
			}
			return xdsmsg.EDSCluster(victim, "")
		}, func(second bool) proto.Message {
			c := xdsmsg.EDSCluster(victim, "")
			if second {
				xdsmsg.With(c, "circuit_breakers { thresholds { max_requests { value: 5000 } } }")
			}
			return c
		}},
		{"route", xdsmsg.RouteType, routes, routes},
		{"none", xdsmsg.ClusterType, nil, nil},
	}
}

// cost measures what a change takes of the client: CPU time, allocations, and
// bytes on the wire.
func (f *fleet) cost(b *testing.B, peer string, client *benchClient, change fleetChange) {
	f.push(b, change) // Buffers have their size then.
	before := client.atRest()
	sent := f.sent.Load()
	n := 0
	for b.Loop() {
		for range changesPerLoop {
			f.push(b, change)
			n++
		}
	}
	after := client.atRest()
	figures := map[string]float64{
		"cpu-ms/op": float64((after.CPU - before.CPU).Microseconds()) / 1e3 / float64(n),
		"allocs/op": float64(after.Allocs-before.Allocs) / float64(n),
		"B/op":      float64(after.AllocBytes-before.AllocBytes) / float64(n),
		"wire-B/op": float64(f.sent.Load()-sent) / float64(n),
	}
	if peer != grpcGo { // It does not count them.
		figures["decoded/op"] = float64(after.Decoded-before.Decoded) / float64(n)
	}
	report(b, figures)
}

// push makes the change and returns when the client has taken it.
func (f *fleet) push(b *testing.B, change fleetChange) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	f.pushes++
	f.server.Skip()
	match := xdstest.ACKOf(change.typeURL)
	if change.small != nil {
		f.moved[change.name] = !f.moved[change.name]
		f.server.Set(b, change.small(f.moved[change.name]))
	} else {
		defer f.again()()
		victim := xdsmsg.EDSCluster(f.name(f.victim()), "")
		victim.AltStatName = fmt.Sprint(f.pushes) // so that there is a response
		f.server.Set(b, victim)
	}
	if _, err := f.server.Wait(ctx, match); err != nil {
		b.Fatalf("the client did not take the change of %s: %v", change.name, ctx.Err())
	}
}

// again has the next responses send every Cluster as the client has it, under another version, in place of what changes, until stop is
// called.
func (f *fleet) again() (stop func()) {
	if f.unchanged == nil {
		f.unchanged = f.server.Store().Resources(xdsmsg.ClusterType)
	}
	f.server.OnResponse(func(sotw *discoverypb.DiscoveryResponse, delta *discoverypb.DeltaDiscoveryResponse) bool {
		sotw.Resources, delta.Resources = nil, nil
		for _, r := range f.unchanged {
			sotw.Resources = append(sotw.Resources, r.Any())
			delta.Resources = append(delta.Resources, &discoverypb.Resource{Name: r.Name(), Version: fmt.Sprint("again-", f.pushes), Resource: r.Any()})
		}
		return true
	})
	return func() { f.server.OnResponse(nil) }
}

// delay measures the time from a change to the first RPC that follows it.
func (f *fleet) delay(b *testing.B, client *benchClient, change fleetChange) {
	if change.to == nil {
		b.Skip("nothing changes")
	}
	f.moved[change.name] = false // That is how it will end.
	var total time.Duration
	n := 0
	for b.Loop() {
		for _, want := range []string{secondBackend, firstBackend} {
			o := order{Op: "await", Method: f.method(f.victim()), Want: want}
			resource := change.to(want == secondBackend)
			client.do(o) // It begins.
			begin := time.Now()
			f.server.Set(b, resource)
			total += time.Unix(0, client.answer().Answered).Sub(begin)
			n++
		}
	}
	report(b, map[string]float64{"ms-until-an-RPC-shows-it": float64(total.Microseconds()) / 1e3 / float64(n)})
}

// channelCount is how many channels BenchmarkChannels has.
const channelCount = 1_000

// BenchmarkChannels is many channels to one target in one process, each of
// which makes an RPC.
func BenchmarkChannels(b *testing.B) {
	for _, peer := range []string{grpcGo, ours, oursOnDelta} {
		b.Run("peer="+peer, func(b *testing.B) {
			f := newFleet(b, 1, 1)
			client := startBenchClient(b, bootstrapOf(peer, f.server))
			before, dialed, held := client.dial(peer, channelCount, f.method(0))
			report(b, map[string]float64{
				"heap-B/channel":               (float64(held.Heap) - float64(before.Heap)) / channelCount,
				"goroutines/channel":           float64(held.Goroutines-before.Goroutines) / channelCount,
				"ADS-streams":                  float64(f.server.Attempts()),
				"ms-until-all-RPCs-have-ended": float64(dialed.ElapsedUntilAnswer) / 1e6,
				"cpu-ms-until-all-are-at-rest": float64((held.CPU - before.CPU).Microseconds()) / 1e3,
			})
		})
	}
}

// BenchmarkMembers is what each cluster under an aggregate one costs the client's process from the dial until it is at rest. At ten times
// as many it should be the same.
func BenchmarkMembers(b *testing.B) {
	for _, n := range []int{500, 5000} {
		for _, peer := range []string{grpcGo, ours, oursOnDelta} {
			b.Run(fmt.Sprintf("aggregate/members=%d/peer=%s", n, peer), func(b *testing.B) {
				f := newFleet(b, n, 1)
				var names []string
				for i := range n {
					names = append(names, f.name(i))
				}
				aggregate := xdsmsg.AggregateCluster("aggregate", names...)
				aggregate.LbPolicy = clusterpb.Cluster_ROUND_ROBIN // gRPC-Go does not take CLUSTER_PROVIDED.
				f.server.Set(b, aggregate, routes("routes", "aggregate"))
				client := startBenchClient(b, bootstrapOf(peer, f.server))
				before, dialed, held := client.dial(peer, 1, f.method(0))
				b.Run("cost", func(b *testing.B) {
					report(b, map[string]float64{
						"cpu-us/member":          float64((held.CPU - before.CPU).Nanoseconds()) / 1e3 / float64(n),
						"heap-B/member":          (float64(held.Heap) - float64(before.Heap)) / float64(n),
						"ms-until-the-first-RPC": float64(dialed.ElapsedUntilAnswer) / 1e6,
					})
				})
			})
		}
	}
}

// report makes the figures the benchmark's, and takes out the time per
// operation, which is that of both processes.
func report(b *testing.B, figures map[string]float64) {
	if _, ok := figures["allocs/op"]; ok {
		b.ReportAllocs() // Else figures of this name are not printed.
	}
	b.ReportMetric(0, "ns/op")
	for unit, value := range figures {
		b.ReportMetric(value, unit)
	}
}

// backend is a server at n addresses that answers every RPC with its name.
func (f *fleet) backend(b *testing.B, name string, n int) []string {
	return f.backendAt(b, "127.0.0.1:0", name, n)
}

func (f *fleet) backendAt(b *testing.B, addr, name string, n int) (addrs []string) {
	server := grpc.NewServer(grpc.StatsHandler(countConnections{open: &f.connections}),
		grpc.ReadBufferSize(1<<10), grpc.WriteBufferSize(1<<10),
		grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
			if err := stream.RecvMsg(new(testpb.Empty)); err != nil {
				return err
			}
			return stream.SendMsg(&testpb.SimpleResponse{Hostname: name})
		}))
	var serving sync.WaitGroup
	for range n {
		l, err := net.Listen("tcp", addr)
		xdstest.NoError(b, err)
		addrs = append(addrs, l.Addr().String())
		serving.Go(func() { _ = server.Serve(l) })
	}
	b.Cleanup(func() {
		server.Stop()
		serving.Wait()
	})
	return addrs
}

// noStats is a stats.Handler that takes in nothing.
type noStats struct{}

func (noStats) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (noStats) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (noStats) HandleRPC(context.Context, stats.RPCStats)                         {}
func (noStats) HandleConn(context.Context, stats.ConnStats)                       {}

// countConnections counts the connections that are open.
type countConnections struct {
	noStats
	open *atomic.Int64
}

func (c countConnections) HandleConn(_ context.Context, s stats.ConnStats) {
	switch s.(type) {
	case *stats.ConnBegin:
		c.open.Add(1)
	case *stats.ConnEnd:
		c.open.Add(-1)
	}
}

// countSent counts the bytes of messages that are sent.
type countSent struct {
	noStats
	bytes *atomic.Int64
}

func (c countSent) HandleRPC(_ context.Context, s stats.RPCStats) {
	if out, ok := s.(*stats.OutPayload); ok {
		c.bytes.Add(int64(out.WireLength))
	}
}
