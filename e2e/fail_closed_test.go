package e2e_test

import (
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	rawpb "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/raw_buffer/v3"
	tlspb "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/credentials/xds"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// xdsCreds leave the security of connections to the control plane, and are plaintext
// where it asks for none.
func xdsCreds(t *testing.T) grpc.DialOption {
	t.Helper()
	creds, err := xds.NewClientCredentials(xds.ClientOptions{FallbackCreds: insecure.NewCredentials()})
	xdstest.NoError(t, err)
	return grpc.WithTransportCredentials(creds)
}

func transportSocket(name string, config proto.Message) *corepb.TransportSocket {
	return &corepb.TransportSocket{Name: name, ConfigType: &corepb.TransportSocket_TypedConfig{TypedConfig: xdsmsg.Any(config)}}
}

func tlsSocket() *corepb.TransportSocket {
	return transportSocket("envoy.transport_sockets.tls", new(tlspb.UpstreamTlsContext))
}

func rawSocket() *corepb.TransportSocket {
	return transportSocket("envoy.transport_sockets.raw_buffer", new(rawpb.RawBuffer))
}

func withSocket(c *clusterpb.Cluster, s *corepb.TransportSocket) *clusterpb.Cluster {
	c.TransportSocket = s
	return c
}

// askForTLS gives every Cluster with endpoints among the resources a transport socket.
func askForTLS(resources []proto.Message) []proto.Message {
	for _, r := range resources {
		if c, ok := r.(*clusterpb.Cluster); ok && c.GetClusterType() == nil {
			withSocket(c, tlsSocket())
		}
	}
	return resources
}

var refusal = []string{"envoy.transport_sockets.tls", "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext", "plaintext", "credentials/xds"}

// On a channel whose credentials leave security to the control plane, a Cluster that
// asks for TLS gets no RPC and no connection, whatever its type.
func TestNoPlaintextToAClusterThatAsksForTLS(t *testing.T) {
	t.Parallel()
	for _, tc := range clusterKinds {
		xdstest.Parallel(t, tc.name, func(t *testing.T) {
			m, seen := newMesh(t), new(connections)
			backend := testutils.StartBackend(t, "b1", grpc.StatsHandler(seen))
			_, target := inZone(t, backend)
			m.set(chain(service, toCluster("c"))...)
			m.set(askForTLS(tc.of(backend, target))...)
			cc := m.dial("xds:///"+service, xdsCreds(t))
			for _, k := range kinds {
				_, err := call(testutils.Context(t), cc, k)
				checkStatus(t, err, codes.Unavailable, refusal...)
			}
			if n := seen.n.Load(); n != 0 {
				t.Errorf("%d connections to the backend, want none", n)
			}
			t.Run("not opted in", func(t *testing.T) { mustReach(t, m.dial("xds:///"+service), unary, backend) })
		})
	}
}

// What asks for something other than plaintext, and what does not.
func TestTransportSocketsOfAClusterEndToEnd(t *testing.T) {
	t.Parallel()
	match := func(s *corepb.TransportSocket) *clusterpb.Cluster_TransportSocketMatch {
		return &clusterpb.Cluster_TransportSocketMatch{Name: "a", TransportSocket: s}
	}
	for _, tc := range []struct {
		name    string
		cluster func(*clusterpb.Cluster)
		fails   []string // nil: it serves
	}{
		{"none", func(*clusterpb.Cluster) {}, nil},
		{"raw_buffer", func(c *clusterpb.Cluster) { c.TransportSocket = rawSocket() }, nil},
		{"raw_buffer, by name alone", func(c *clusterpb.Cluster) {
			c.TransportSocket = &corepb.TransportSocket{Name: "envoy.transport_sockets.raw_buffer"}
		}, nil},
		{"raw_buffer, by type", func(c *clusterpb.Cluster) { c.TransportSocket = transportSocket("mine", new(rawpb.RawBuffer)) }, nil},
		{"TLS by the name of raw_buffer", func(c *clusterpb.Cluster) {
			c.TransportSocket = transportSocket("envoy.transport_sockets.raw_buffer", new(tlspb.UpstreamTlsContext))
		}, []string{"UpstreamTlsContext"}},
		{"without type and name", func(c *clusterpb.Cluster) { c.TransportSocket = new(corepb.TransportSocket) }, []string{"transport_socket"}},
		{"a match", func(c *clusterpb.Cluster) {
			c.TransportSocketMatches = []*clusterpb.Cluster_TransportSocketMatch{match(rawSocket()), match(tlsSocket())}
		}, []string{"transport_socket_matches[1]", "UpstreamTlsContext"}},
		{"a match without a socket", func(c *clusterpb.Cluster) {
			c.TransportSocketMatches = []*clusterpb.Cluster_TransportSocketMatch{match(nil)}
		}, []string{"transport_socket_matches[0]"}},
		{"matches for raw_buffer", func(c *clusterpb.Cluster) {
			c.TransportSocketMatches = []*clusterpb.Cluster_TransportSocketMatch{match(rawSocket())}
		}, nil},
	} {
		xdstest.Parallel(t, tc.name, func(t *testing.T) {
			m, backend := newMesh(t), testutils.StartBackend(t, "b1")
			c := xdsmsg.EDSCluster("c", "")
			tc.cluster(c)
			m.set(append(chain(service, toCluster("c")), c, xdsmsg.SimpleEndpoints("c", backend.Addr()))...)
			cc := m.dial("xds:///"+service, xdsCreds(t))
			if tc.fails == nil {
				mustReach(t, cc, unary, backend)
			} else {
				mustFail(t, cc, append(tc.fails, `"c"`, "plaintext")...)
			}
			mustReach(t, m.dial("xds:///"+service), unary, backend)
		})
	}
}

// Only the member that asks for TLS is left out, unless it is the aggregate cluster
// that asks.
func TestMemberOfAnAggregateThatAsksForTLS(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	secret, open := testutils.StartBackend(t, "secret"), testutils.StartBackend(t, "open")
	m.set(append(chain(service, toCluster("c")), xdsmsg.AggregateCluster("c", "secret", "open"))...)
	m.set(append(askForTLS(clusterOf("secret", secret)), clusterOf("open", open)...)...)
	cc := m.dial("xds:///"+service, xdsCreds(t))
	for _, k := range kinds {
		mustReach(t, cc, k, open)
	}
	m.set(withSocket(xdsmsg.AggregateCluster("c", "secret", "open"), tlsSocket()))
	untilFails(t, cc)
	m.set(xdsmsg.AggregateCluster("c", "secret", "open"))
	mustReach(t, cc, unary, open)
	// What is under an aggregate cluster that asks is passed over with it.
	m.set(xdsmsg.AggregateCluster("c", "middle"), xdsmsg.AggregateCluster("middle", "open"))
	mustReach(t, cc, unary, open)
	m.set(withSocket(xdsmsg.AggregateCluster("middle", "open"), tlsSocket()))
	untilFails(t, cc)
	other := testutils.StartBackend(t, "other")
	m.set(append(clusterOf("other", other), xdsmsg.AggregateCluster("c", "middle", "other"))...)
	mustReach(t, cc, unary, other)
	if n := secret.Count(); n != 0 {
		t.Errorf("%d RPCs went to the cluster that asks for TLS", n)
	}
}

// untilFails makes RPCs until one fails because its cluster asks for TLS.
func untilFails(t *testing.T, cc *grpc.ClientConn) {
	t.Helper()
	untilFailed(t, cc, refusal...)
}

// A Cluster that begins to ask for TLS while RPCs run gets no other one after the first
// that fails, also if its type changes in the same moment, and serves again when it no
// longer asks.
func TestAClusterBeginsToAskForTLS(t *testing.T) {
	t.Parallel()
	under := func(b *testutils.Backend, s *corepb.TransportSocket) []proto.Message {
		return []proto.Message{
			xdsmsg.AggregateCluster("c", "under"), withSocket(xdsmsg.EDSCluster("under", ""), s), xdsmsg.SimpleEndpoints("under", b.Addr()),
		}
	}
	single := func(b *testutils.Backend, s *corepb.TransportSocket) []proto.Message {
		return []proto.Message{withSocket(xdsmsg.EDSCluster("c", ""), s), xdsmsg.SimpleEndpoints("c", b.Addr())}
	}
	unanswered := func(_ *testutils.Backend, s *corepb.TransportSocket) []proto.Message {
		return []proto.Message{withSocket(xdsmsg.EDSCluster("c", "never-there"), s)}
	}
	for _, tc := range []struct {
		name          string
		before, after func(*testutils.Backend, *corepb.TransportSocket) []proto.Message
	}{
		{"EDS", single, single},
		{"aggregate", under, under},
		{"EDS to aggregate", single, under},
		{"aggregate to EDS", under, single},
		{"aggregate to EDS without an answer", under, unanswered},
	} {
		xdstest.Parallel(t, tc.name, func(t *testing.T) {
			m, backend := newMesh(t), testutils.StartBackend(t, "b1")
			m.keepSilent()
			m.set(chain(service, toCluster("c"))...)
			m.set(tc.before(backend, nil)...)
			cc := m.dial("xds:///"+service, xdsCreds(t))
			mustReach(t, cc, unary, backend)
			m.set(tc.after(backend, tlsSocket())...)
			untilFails(t, cc)
			before := backend.Count()
			for range 20 {
				for _, k := range kinds {
					_, err := call(testutils.Context(t), cc, k)
					checkStatus(t, err, codes.Unavailable, refusal...)
				}
			}
			if n := backend.Count() - before; n != 0 {
				t.Errorf("%d RPCs went out in plaintext after the change", n)
			}
			m.set(tc.before(backend, nil)...)
			mustReach(t, cc, unary, backend)
		})
	}
}

// Copies, further attempts and sessions are not sent in plaintext either.
func TestMirrorsRetriesAndSessionsAskForTLSToo(t *testing.T) {
	t.Parallel()
	xdstest.Parallel(t, "mirror", func(t *testing.T) {
		m := newMesh(t)
		open, secret := testutils.StartBackend(t, "open"), testutils.StartBackend(t, "secret")
		route := toCluster("open")
		route.GetRoute().RequestMirrorPolicies = []*routepb.RouteAction_RequestMirrorPolicy{{Cluster: "secret"}, {Cluster: "also-open"}}
		also := testutils.StartBackend(t, "also-open")
		m.set(chain(service, route)...)
		m.set(append(append(clusterOf("open", open), clusterOf("also-open", also)...), askForTLS(clusterOf("secret", secret))...)...)
		cc := m.dial("xds:///"+service, xdsCreds(t))
		for _, k := range kinds {
			mustReach(t, cc, k, open)
		}
		xdstest.NoError(t, also.Wait(testutils.Context(t), len(kinds)))
		if n := secret.Count(); n != 0 {
			t.Errorf("%d copies went out in plaintext", n)
		}
	})
	xdstest.Parallel(t, "retry", func(t *testing.T) {
		m, secret := newMesh(t), testutils.StartBackend(t, "secret")
		route := toCluster("c")
		route.GetRoute().RetryPolicy = &routepb.RetryPolicy{RetryOn: "unavailable"}
		m.set(append(chain(service, route), askForTLS(clusterOf("c", secret))...)...)
		mustFail(t, m.dial("xds:///"+service, xdsCreds(t)), refusal...)
		if n := secret.Count(); n != 0 {
			t.Errorf("%d attempts went out in plaintext", n)
		}
	})
	xdstest.Parallel(t, "session", func(t *testing.T) {
		m, backend := newMesh(t), testutils.StartBackend(t, "b1")
		m.set(xdsmsg.DefaultListener(service, service, byCookie("")), xdsmsg.RouteConfig(service, service, toCluster("c")))
		serve := func(s *corepb.TransportSocket, endpoints *endpointpb.ClusterLoadAssignment) {
			m.set(withSocket(stickyCluster("c"), s), endpoints)
		}
		serve(nil, xdsmsg.SimpleEndpoints("c", backend.Addr()))
		cc := m.dial("xds:///"+service, xdsCreds(t))
		var s session
		s.call(testutils.Context(t), t, cc, unary)
		ctx := metadata.AppendToOutgoingContext(testutils.Context(t), "cookie", s.cookie.Name+"="+s.cookie.Value)
		serve(tlsSocket(), draining("c", []*testutils.Backend{backend}, backend))
		untilFails(t, cc)
		before := backend.Count()
		_, err := call(ctx, cc, unary)
		checkStatus(t, err, codes.Unavailable, refusal...)
		if n := backend.Count() - before; n != 0 {
			t.Errorf("%d RPCs of a session went out in plaintext", n)
		}
	})
}
