package controlplane_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/stats"

	"github.com/dynxds/dynxds/mesh/controlplane"
)

// wireBytes counts what comes in over a connection.
type wireBytes struct{ atomic.Int64 }

func (w *wireBytes) HandleRPC(_ context.Context, s stats.RPCStats) {
	if in, ok := s.(*stats.InPayload); ok {
		w.Add(int64(in.WireLength))
	}
}

func (*wireBytes) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (*wireBytes) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (*wireBytes) HandleConn(context.Context, stats.ConnStats)                       {}

// One change among 10,000 Clusters, one stream with a wildcard over loopback,
// from the update until the client has decoded the response.
func BenchmarkServer_OneChangeAmong10000Clusters(b *testing.B) {
	const total = 10_000
	start := func(b *testing.B) (*controlplane.Store, discoverypb.AggregatedDiscoveryServiceClient, *wireBytes) {
		s, count := startServer(b, controlplane.Options{MaxResponseSize: 16 << 20}), new(wireBytes)
		s.update(b, func(tx *controlplane.Tx) {
			for i := range total {
				tx.Set(cluster(fmt.Sprintf("cluster-%d", i)))
			}
		})
		conn, err := grpc.NewClient(s.conn.Target(), grpc.WithStatsHandler(count),
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { conn.Close() })
		return s.store, discoverypb.NewAggregatedDiscoveryServiceClient(conn), count
	}
	run := func(b *testing.B, store *controlplane.Store, count *wireBytes, recv func() (resources int)) {
		b.Helper()
		if got := recv(); got != total {
			b.Fatalf("%d Clusters at first", got)
		}
		count.Store(0)
		b.ReportAllocs()
		n := 0
		for ; b.Loop(); n++ {
			if _, err := store.Update(func(tx *controlplane.Tx) {
				tx.Set(changed(fmt.Sprintf("cluster-%d", n%total), fmt.Sprint(n)))
			}); err != nil {
				b.Fatal(err)
			}
			recv()
		}
		b.ReportMetric(float64(count.Load())/float64(n), "wire-B/op")
	}
	b.Run("SotW", func(b *testing.B) {
		store, ads, count := start(b)
		stream, err := ads.StreamAggregatedResources(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		req := &discoverypb.DiscoveryRequest{TypeUrl: cds}
		if err := stream.Send(req); err != nil {
			b.Fatal(err)
		}
		run(b, store, count, func() int {
			resp, err := stream.Recv()
			if err != nil {
				b.Fatal(err)
			}
			req.VersionInfo, req.ResponseNonce = resp.GetVersionInfo(), resp.GetNonce()
			if err := stream.Send(req); err != nil {
				b.Fatal(err)
			}
			return len(resp.GetResources())
		})
	})
	b.Run("delta", func(b *testing.B) {
		store, ads, count := start(b)
		stream, err := ads.DeltaAggregatedResources(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		req := &deltaRequest{TypeUrl: cds}
		if err := stream.Send(req); err != nil {
			b.Fatal(err)
		}
		run(b, store, count, func() int {
			resp, err := stream.Recv()
			if err != nil {
				b.Fatal(err)
			}
			req.ResponseNonce = resp.GetNonce()
			if err := stream.Send(req); err != nil {
				b.Fatal(err)
			}
			return len(resp.GetResources())
		})
	})
}

// 1,000 delta streams over loopback, each with 1,000 of 10,000 names: the memory of both ends per
// stream, and the time of one change that concerns all of them, to the last client.
func BenchmarkServer_Fleet(b *testing.B) {
	const resources, names, streams, perConn = 10_000, 1000, 1000, 100
	s := startServer(b)
	s.update(b, func(tx *controlplane.Tx) {
		for i := range resources {
			tx.Set(assignment(fmt.Sprintf("assignment-%d", i)))
		}
	})
	var (
		received sync.WaitGroup
		ended    sync.WaitGroup
		before   = memory()
		r        = rand.New(rand.NewPCG(1, 2))
	)
	began := time.Now()
	received.Add(streams)
	for i := range streams / perConn {
		conn, err := grpc.NewClient(s.conn.Target(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { conn.Close() })
		for j := range perConn {
			list := []string{"assignment-0"}
			for _, k := range r.Perm(resources - 1)[:names-1] {
				list = append(list, fmt.Sprintf("assignment-%d", k+1))
			}
			stream, err := discoverypb.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			if err := stream.Send(&deltaRequest{
				Node: &corepb.Node{Id: fmt.Sprintf("node-%d-%d", i, j)}, TypeUrl: eds, ResourceNamesSubscribe: list,
			}); err != nil {
				b.Fatal(err)
			}
			ended.Go(func() {
				for {
					resp, err := stream.Recv()
					if err != nil {
						return
					}
					received.Done()
					if err := stream.Send(&deltaRequest{TypeUrl: eds, ResponseNonce: resp.GetNonce()}); err != nil {
						return
					}
				}
			})
		}
	}
	received.Wait()
	begun, each := time.Since(began), float64(memory()-before)/streams
	n := 0
	for ; b.Loop(); n++ {
		received.Add(streams)
		a := assignment("assignment-0")
		a.Endpoints = xdsEndpoints(n)
		s.set(b, a)
		received.Wait()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n)/streams, "ns/client")
	b.ReportMetric(each, "B/stream")
	b.ReportMetric(float64(begun.Milliseconds()), "ms-to-begin")
}

// memory returns the bytes of live objects and stacks.
func memory() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

func xdsEndpoints(n int) []*endpointpb.LocalityLbEndpoints {
	return []*endpointpb.LocalityLbEndpoints{{Priority: uint32(n)}}
}
