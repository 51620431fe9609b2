package interop_test

import (
	"context"
	"fmt"
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	grpcbalancer "google.golang.org/grpc/balancer"
	grpcresolver "google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/interop/gocp"
)

// treePeer is a peer that has a tree of policies.
type treePeer struct {
	name    string
	builder func(testing.TB, *gocp.Server) grpcresolver.Builder
}

var trees = []treePeer{{"grpc-go-xds", grpcGoBuilder}, {"dynxds", dynxdsBuilder}}

// BenchmarkPickThroughTree is what an RPC asks of the tree of policies: to pick one
// of the endpoints in two localities, and to be told that the RPC has ended. The tree
// is that of a channel that a control plane has configured, with and without load
// reports (LRS), one pick at a time and on all processors at once.
func BenchmarkPickThroughTree(b *testing.B) {
	for _, tree := range []struct {
		endpoints int
		lrs       bool
	}{{1, false}, {100, false}, {100, true}, {10_000, false}} {
		for _, p := range trees {
			b.Run(fmt.Sprintf("endpoints=%d/lrs=%v/peer=%s", tree.endpoints, tree.lrs, p.name), func(b *testing.B) {
				picker, info := connectedTree(b, p, tree.endpoints, tree.lrs)
				b.Run("sequential", func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						pickOnce(b, picker, info)
					}
				})
				b.Run("parallel", func(b *testing.B) {
					b.ReportAllocs()
					b.RunParallel(func(pb *testing.PB) {
						for pb.Next() {
							pickOnce(b, picker, info)
						}
					})
				})
			})
		}
	}
}

func pickOnce(b *testing.B, p grpcbalancer.Picker, info grpcbalancer.PickInfo) {
	result, err := p.Pick(info)
	if err != nil {
		b.Error(err)
		return
	}
	end(result)
}

// connectedTree returns the picker of a channel with n connected endpoints.
func connectedTree(b *testing.B, p treePeer, n int, lrs bool) (grpcbalancer.Picker, grpcbalancer.PickInfo) {
	b.Helper()
	zones := [2]xdsmsg.Locality{xdsmsg.In("a"), xdsmsg.In("b")}
	for i, addr := range onPipes(n) {
		z := &zones[i%2]
		z.Endpoints = append(z.Endpoints, xdsmsg.Endpoint{Addr: addr, Health: corepb.HealthStatus_HEALTHY})
	}
	control := gocp.Start(b, gocp.AnyNames)
	control.Set(b, listener("routes"), routes("routes", "cluster"), reportedCluster("cluster", lrs),
		xdsmsg.Endpoints("endpoints-of-cluster", zones[:min(n, 2)]...))
	t := openTap(b)
	ctx, cancel := context.WithTimeout(context.Background(), connecting)
	b.Cleanup(cancel)
	newPipes(b).connect(ctx, b, p, control)
	return t.await(ctx, b, n)
}

// reportedCluster is a cluster without a limit that the benchmark could reach.
func reportedCluster(name string, lrs bool) *clusterpb.Cluster {
	c := cluster(name, name)
	if lrs {
		c.LrsServer = &corepb.ConfigSource{ConfigSourceSpecifier: &corepb.ConfigSource_Self{Self: &corepb.SelfConfigSource{}}}
	}
	return c
}
