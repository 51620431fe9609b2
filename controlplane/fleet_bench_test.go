package controlplane_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/dynxds/dynxds/controlplane"
)

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
