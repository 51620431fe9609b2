package e2e_test

import (
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	proxypb "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/http_11_proxy/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// withProxy has every Cluster among the resources that has endpoints ask for HTTP CONNECT, around
// the transport socket that it has, and gives all endpoints a proxy, "" for none.
func withProxy(resources []proto.Message, proxy string) []proto.Message {
	give := func(a *endpointpb.ClusterLoadAssignment) {
		for _, l := range a.GetEndpoints() {
			for _, e := range l.GetLbEndpoints() {
				if proxy != "" {
					e.Metadata = &corepb.Metadata{TypedFilterMetadata: map[string]*anypb.Any{
						"envoy.http11_proxy_transport_socket.proxy_address": xdsmsg.Any(xdsmsg.Address(proxy)),
					}}
				}
			}
		}
	}
	for _, r := range resources {
		switch r := r.(type) {
		case *clusterpb.Cluster:
			if !isAggregate(r) {
				r.TransportSocket = xdsmsg.TLSSocket(&proxypb.Http11ProxyUpstreamTransport{TransportSocket: r.GetTransportSocket()})
				r.TransportSocket.Name = "envoy.transport_sockets.http_11_proxy"
			}
			give(r.GetLoadAssignment())
		case *endpointpb.ClusterLoadAssignment:
			give(r)
		}
	}
	return resources
}

// checkTunnels checks which tunnels a proxy has opened in all.
func checkTunnels(t *testing.T, proxy *xdstest.Proxy, want map[string]int) {
	t.Helper()
	xdstest.Equal(t, "tunnels", want, proxy.Tunnels())
}

// A change of the proxy, or of the transport socket around or inside it, makes a new connection,
// and no RPC fails.
func TestProxyChangesUnderLoad(t *testing.T) {
	overLinks(t, func(t *testing.T) {
		m, seen := newSecureMesh(t), new(connections)
		backend := secureBackend(t, "b", m.ca, false, forNames("a"), grpc.StatsHandler(seen))
		context := xdsmsg.UpstreamTLS("", "default", "a")
		proxy := xdstest.StartProxy(t)
		m.set(chain(service, toCluster("c")), withProxy(asking("c", context, backend), proxy.Addr()))
		cc := m.dial()
		mustReach(t, cc, unary, backend)
		load, ctx, tunnels := startLoad(t, cc), testutils.Context(t), 1
		// await waits for another connection, and checks the tunnels through the latest proxy.
		await := func(want int) {
			t.Helper()
			tunnels++
			for int(seen.n.Load()) < tunnels && ctx.Err() == nil {
				load.await(t, backend)
			}
			checkTunnels(t, proxy, map[string]int{backend.Addr(): want})
		}
		for range 5 {
			proxy = xdstest.StartProxy(t)
			m.set(withProxy(clusterOf("c", backend), proxy.Addr())[1])
			await(1)
		}
		context.Sni = "a"
		m.set(withProxy(asking("c", context, backend), proxy.Addr()))
		await(2)
		xdstest.Equal(t, "connections, as many as tunnels", tunnels, int(seen.n.Load()))
		m.set(asking("c", context, backend))
		for int(seen.n.Load()) == tunnels && ctx.Err() == nil {
			load.await(t, backend)
		}
		load.Stop(t)
		checkTunnels(t, proxy, map[string]int{backend.Addr(): 2})
		// One or two: the endpoint may lose its proxy before the Cluster asks for none.
		if n := int(seen.n.Load()) - tunnels; n < 1 || n > 2 {
			t.Errorf("%d connections without a proxy", n)
		}
	})
}
