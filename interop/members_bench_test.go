//go:build unix

package interop_test

import (
	"context"
	"fmt"
	"net"
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/controlplane"
	"github.com/dynxds/dynxds/internal/dnsserver"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// BenchmarkMembers is what each member of one big cluster costs the client's process
// from the dial until it is at rest: a cluster under an aggregate one, an endpoint of a
// STATIC cluster, a name of a STRICT_DNS cluster. At ten times as many it should be
// the same.
func BenchmarkMembers(b *testing.B) {
	for _, kind := range []struct {
		name  string
		sizes []int
		peers []string
		make  func(m *memberWorld, n int) []proto.Message
	}{
		{"aggregate", []int{500, 5000}, []string{grpcGo, ours, oursOnDelta}, (*memberWorld).aggregate},
		{"static", []int{10_000, 100_000}, []string{ours}, (*memberWorld).static},
		{"random", []int{1000, 10_000}, []string{ours}, (*memberWorld).random},
		{"dns", []int{1000, 10_000}, []string{ours}, (*memberWorld).dns},
	} {
		for _, n := range kind.sizes {
			for _, peer := range kind.peers {
				b.Run(fmt.Sprintf("%s/members=%d/peer=%s", kind.name, n, peer), func(b *testing.B) {
					m := newMemberWorld(b)
					m.server.Update(b, func(tx *controlplane.Tx) { tx.Set(kind.make(m, n)...) })
					client := startBenchClient(b, bootstrapOf(peer, m.server))
					before := client.held()
					dialed := client.do(order{Op: "dial", Peer: peer, Channels: 1, Method: "/example.Service/Method", DNS: m.zone.Addr()})
					held := client.held()
					b.Run("cost", func(b *testing.B) {
						each := float64(n)
						report(b, map[string]float64{
							"cpu-us/member":          float64((held.CPU - before.CPU).Nanoseconds()) / 1e3 / each,
							"heap-B/member":          (float64(held.Heap) - float64(before.Heap)) / each,
							"most-goroutines":        float64(held.MostGoroutines),
							"ms-until-the-first-RPC": float64(dialed.ElapsedUntilAnswer) / 1e6,
						})
					})
				})
			}
		}
	}
}

// memberWorld is a control plane, a DNS server and a backend on every address of the
// loopback network.
type memberWorld struct {
	server *xdstest.Server
	zone   *dnsserver.Server
	port   int
}

func newMemberWorld(b *testing.B) *memberWorld {
	m := &memberWorld{}
	m.server = xdstest.StartServer(b, testutils.GRPCOptions(grpc.MaxRecvMsgSize(64<<20)))
	m.server.Keep(20)
	var err error
	if m.zone, err = dnsserver.New(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(m.zone.Close)
	f := &fleet{}
	_, port, err := net.SplitHostPort(f.backendAt(b, "0.0.0.0:0", firstBackend, 1)[0])
	xdstest.NoError(b, err)
	if m.port, err = net.LookupPort("tcp", port); err != nil {
		b.Fatal(err)
	}
	return m
}

// address returns the i-th of up to 2^20 addresses of the backend.
func (m *memberWorld) address(i int) string {
	return fmt.Sprintf("127.%d.%d.%d:%d", 1+i>>16, i>>8&255, i&255, m.port)
}

func (m *memberWorld) aggregate(n int) []proto.Message {
	names := make([]string, n)
	resources := []proto.Message{listener("routes"), routes("routes", "cluster")}
	for i := range names {
		names[i] = fmt.Sprintf("member-%05d", i)
		resources = append(resources, xdsmsg.EDSCluster(names[i], ""), xdsmsg.SimpleEndpoints(names[i], m.address(i)))
	}
	c := xdsmsg.AggregateCluster("cluster", names...)
	c.LbPolicy = clusterpb.Cluster_ROUND_ROBIN // gRPC-Go does not take CLUSTER_PROVIDED.
	return append(resources, c)
}

func (m *memberWorld) static(n int) []proto.Message {
	var addrs []string
	for i := range n {
		addrs = append(addrs, m.address(i))
	}
	c := xdsmsg.InlineCluster("cluster", clusterpb.Cluster_STATIC)
	c.LoadAssignment = xdsmsg.SimpleEndpoints("cluster", addrs...)
	// The only one of the common policies that connects to an endpoint when it is picked.
	c.LbPolicy = clusterpb.Cluster_RING_HASH
	c.LbConfig = &clusterpb.Cluster_RingHashLbConfig_{RingHashLbConfig: &clusterpb.Cluster_RingHashLbConfig{}}
	return []proto.Message{listener("routes"), routes("routes", "cluster"), c}
}

// random connects to all of its endpoints, and costs what connections cost.
func (m *memberWorld) random(n int) []proto.Message {
	resources := m.static(n)
	c := resources[2].(*clusterpb.Cluster)
	c.LbPolicy, c.LbConfig = clusterpb.Cluster_RANDOM, nil
	return resources
}

// dns has names that all lead to the same few addresses, so that it is not the
// connections that are measured.
func (m *memberWorld) dns(n int) []proto.Message {
	var names []string
	for i := range n {
		name := fmt.Sprintf("member-%05d.test", i)
		m.zone.SetA(name, "127.0.0."+fmt.Sprint(1+i%8))
		names = append(names, fmt.Sprintf("%s:%d", name, m.port))
	}
	c := xdsmsg.InlineCluster("cluster", clusterpb.Cluster_STRICT_DNS)
	c.LoadAssignment = xdsmsg.SimpleEndpoints("cluster", names...)
	return []proto.Message{listener("routes"), routes("routes", "cluster"), c}
}

// useDNS has the process ask a DNS server.
func useDNS(addr string) {
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, addr)
	}}
}
