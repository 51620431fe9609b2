package interop_test

import (
	"fmt"
	"net"
	"sync"
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	grpcbalancer "google.golang.org/grpc/balancer"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	grpcresolver "google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/interop/gocp"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/testutils/xdsmsg"
)

// treePeer is a peer that has a tree of policies.
type treePeer struct {
	name    string
	builder func(testing.TB, *gocp.Server) grpcresolver.Builder
}

var trees = []treePeer{{"grpc-go-xds", grpcGoBuilder}, {"dynxds", dynxdsBuilder}}

// BenchmarkPickThroughTree is what an RPC asks of the tree of policies: to pick one
// of 100 endpoints in two localities, and to be told that the RPC has ended. The tree
// is that of a channel that a control plane has configured, with and without load
// reports (LRS), one pick at a time and on all processors at once.
func BenchmarkPickThroughTree(b *testing.B) {
	const endpoints = 100
	for _, lrs := range []bool{false, true} {
		for _, p := range trees {
			b.Run(fmt.Sprintf("lrs=%v/peer=%s", lrs, p.name), func(b *testing.B) {
				picker, info := connectedTree(b, p, endpoints, lrs)
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
	for i, addr := range manyAddresses(b, n) {
		z := &zones[i%2]
		z.Endpoints = append(z.Endpoints, xdsmsg.Endpoint{Addr: addr, Health: corepb.HealthStatus_HEALTHY})
	}
	control := gocp.Start(b, gocp.AnyNames)
	control.Set(b, listener("routes"), routes("routes", "cluster"), reportedCluster("cluster", lrs),
		xdsmsg.Endpoints("endpoints-of-cluster", zones[:]...))
	t := openTap(b)
	cc := dial(b, p.builder(b, control), "xds:///"+service)
	call(b, testpb.NewTestServiceClient(cc))
	return t.await(testutils.Context(b), b, n)
}

// reportedCluster is a cluster without a limit that the benchmark could reach.
func reportedCluster(name string, lrs bool) *clusterpb.Cluster {
	c := cluster(name, name)
	if lrs {
		c.LrsServer = &corepb.ConfigSource{ConfigSourceSpecifier: &corepb.ConfigSource_Self{Self: &corepb.SelfConfigSource{}}}
	}
	return c
}

// manyAddresses returns n loopback addresses at which one backend answers.
func manyAddresses(b *testing.B, n int) []string {
	b.Helper()
	l, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		b.Fatal(err)
	}
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	testpb.RegisterTestServiceServer(server, lean{})
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) })
	b.Cleanup(func() {
		server.Stop()
		serving.Wait()
	})
	addrs := make([]string, n)
	for i := range addrs {
		addrs[i] = fmt.Sprintf("127.0.%d.%d:%d", 1+i/200, 1+i%200, l.Addr().(*net.TCPAddr).Port)
	}
	return addrs
}
