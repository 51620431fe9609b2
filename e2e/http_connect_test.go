package e2e_test

import (
	"encoding/base64"
	"net"
	"strings"
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	tlspb "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

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
					e.Metadata = xdsmsg.Proxy(proxy)
				}
			}
		}
	}
	for _, r := range resources {
		switch r := r.(type) {
		case *clusterpb.Cluster:
			if !isAggregate(r) {
				r.TransportSocket = xdsmsg.ProxySocket(r.GetTransportSocket())
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

// A86-xds-http-connect.md, "Proposal": with and without TLS inside, on channels that leave security
// to the control plane and on others, which ignore what is inside.
func TestHTTPConnectEndToEnd(t *testing.T) {
	t.Parallel()
	inOneWay(t, "the resources stay the same")
	for _, tc := range []struct {
		name    string
		context *tlspb.UpstreamTlsContext
		mutual  bool // false: the backend is in plaintext unless there is a context
		opts    []grpc.DialOption
		secure  bool
	}{
		{"plaintext", nil, false, nil, false},
		{"TLS", xdsmsg.UpstreamTLS("", "default", "a"), false, nil, true},
		{"mTLS", xdsmsg.UpstreamTLS("default", "default", "a"), true, nil, true},
		{"a channel that did not opt in", nil, false, []grpc.DialOption{dialInsecure}, false},
		{"a channel that did not opt in, with TLS inside", xdsmsg.UpstreamTLS("", "default", "a"), false, []grpc.DialOption{dialInsecure}, false},
	} {
		xdstest.Parallel(t, tc.name, func(t *testing.T) {
			m, proxy, seen := newSecureMesh(t), xdstest.StartProxy(t), new(connections)
			backend := testutils.StartBackend(t, "plain", grpc.StatsHandler(seen))
			if tc.secure {
				backend = secureBackend(t, "secure", m.ca, tc.mutual, forNames("a"), grpc.StatsHandler(seen))
			}
			m.set(chain(service, toCluster("c")), withProxy(asking("c", tc.context, backend), proxy.Addr()))
			cc := m.dial(tc.opts...)
			mustReachByEachKind(t, cc, backend)
			if secure := peerOf(t, cc) != nil; secure != tc.secure {
				t.Errorf("TLS: %t, want %t", secure, tc.secure)
			}
			checkTunnels(t, proxy, map[string]int{backend.Addr(): 1})
			if n := seen.n.Load(); n != 1 {
				t.Errorf("the backend has %d connections, want that of the proxy alone", n)
			}
		})
	}
}

// Every type of cluster has proxies. CONNECT has the IP address of an endpoint that is found in DNS.
func TestHTTPConnectOfEveryTypeOfCluster(t *testing.T) {
	t.Parallel()
	inOneWay(t, "the resources stay the same")
	for _, tc := range clusterKinds {
		xdstest.Parallel(t, tc.name, func(t *testing.T) {
			m, proxy := newMesh(t), xdstest.StartProxy(t)
			backend := testutils.StartBackend(t, "b")
			_, target := inZone(t, backend)
			m.set(chain(service, toCluster("c")), withProxy(tc.of(backend, target), proxy.Addr()))
			mustReach(t, m.dial("xds:///"+service), unary, backend)
			_, port, err := net.SplitHostPort(backend.Addr())
			xdstest.NoError(t, err)
			checkTunnels(t, proxy, map[string]int{"127.0.0.1:" + port: 1})
		})
	}
}

// A proxy that does not connect fails RPCs, with a reason, and nothing goes to the endpoint
// directly.
func TestProxyThatRefusesEndToEnd(t *testing.T) {
	t.Parallel()
	inOneWay(t, "the proxy is asked on the way to the backend")
	for _, context := range []*tlspb.UpstreamTlsContext{nil, xdsmsg.UpstreamTLS("default", "default", "a")} {
		m, proxy, seen := newSecureMesh(t), xdstest.StartProxy(t), new(connections)
		proxy.Refuse("403 Forbidden")
		backend := testutils.StartBackend(t, "b", grpc.StatsHandler(seen))
		if context != nil {
			backend = secureBackend(t, "b", m.ca, true, forNames("a"), grpc.StatsHandler(seen))
		}
		m.set(chain(service, toCluster("c")), withProxy(asking("c", context, backend), proxy.Addr()))
		cc := m.dial()
		for _, k := range kinds {
			_, err := call(testutils.Context(t), cc, k)
			checkReason(t, err, `cluster "c"`, "proxy "+proxy.Addr(), "endpoint "+backend.Addr(), `the proxy answered "403 Forbidden"`)
		}
		if n := seen.n.Load(); n != 0 {
			t.Errorf("the backend has %d connections", n)
		}
		proxy.Refuse("")
		mustReach(t, cc, unary, backend)
	}
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
		if n := int(seen.n.Load()); n != tunnels {
			t.Errorf("%d connections, want those of the %d tunnels", n, tunnels)
		}
		m.set(asking("c", context, backend))
		for int(seen.n.Load()) == tunnels && ctx.Err() == nil {
			load.await(t, backend)
		}
		load.stop(t)
		checkTunnels(t, proxy, map[string]int{backend.Addr(): 2})
		// One or two: the endpoint may lose its proxy before the Cluster asks for none.
		if n := int(seen.n.Load()) - tunnels; n < 1 || n > 2 {
			t.Errorf("%d connections without a proxy", n)
		}
	})
}

// A session keeps its endpoint, whose own address its cookie has, behind a proxy as well, also when
// the endpoint drains and its proxy changes.
func TestSessionsThroughProxies(t *testing.T) {
	t.Parallel()
	m, first, second := newMesh(t), xdstest.StartProxy(t), xdstest.StartProxy(t)
	all, ctx := backends(t, "a", "b"), testutils.Context(t)
	m.set(xdsmsg.DefaultListener(service, service, byCookie("")), xdsmsg.RouteConfig(service, service, toCluster("c")))
	m.set(withProxy([]proto.Message{stickyCluster("c"), draining("c", all)}, first.Addr()))
	cc, s := m.dial("xds:///"+service), new(session)
	id := s.call(ctx, t, cc, unary)
	own := all[0]
	if id == "b" {
		own = all[1]
	}
	if value, err := base64.StdEncoding.DecodeString(s.cookie.Value); err != nil || !strings.HasPrefix(string(value), own.Addr()) {
		t.Errorf("the cookie is for %q (%v), want %s", value, err, own.Addr())
	}
	m.set(withProxy([]proto.Message{stickyCluster("c"), draining("c", all, own)}, second.Addr()))
	for ctx.Err() == nil && second.Tunnels()[own.Addr()] == 0 {
		if got := s.call(ctx, t, cc, unary); got != id {
			t.Fatalf("an RPC of the session with %s goes to %s", id, got)
		}
	}
	if s.set != 1 {
		t.Errorf("the cookie was set %d times", s.set)
	}
}
