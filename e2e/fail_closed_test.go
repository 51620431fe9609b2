package e2e_test

import (
	"context"
	"strings"
	"testing"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/credentials/xds"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// xdsCreds leave the security of connections to the control plane, and are plaintext
// where it asks for none.
func xdsCreds(t testing.TB) grpc.DialOption {
	t.Helper()
	creds, err := xds.NewClientCredentials(xds.ClientOptions{FallbackCreds: insecure.NewCredentials()})
	xdstest.NoError(t, err)
	return grpc.WithTransportCredentials(creds)
}

// tlsSocket asks for TLS with the roots of the system, which no server here satisfies.
func tlsSocket() *corepb.TransportSocket { return xdsmsg.TLSSocket(xdsmsg.UpstreamTLS("", "")) }

func withSocket(c *clusterpb.Cluster, s *corepb.TransportSocket) *clusterpb.Cluster {
	c.TransportSocket = s
	return c
}

// askForTLS is withTLS for what tlsSocket asks for.
func askForTLS(resources []proto.Message) []proto.Message {
	return withTLS(resources, xdsmsg.UpstreamTLS("", ""))
}

// refusal is what RPCs to plaintext servers fail with where TLS is asked for.
var refusal = []string{"TLS of cluster ", "the server does not speak TLS"}

// On a channel whose credentials leave security to the control plane, a Cluster that
// asks for TLS gets no RPC in plaintext, whatever its type.
func TestNoPlaintextToAClusterThatAsksForTLS(t *testing.T) {
	t.Parallel()
	inOneWay(t, "the resources stay the same")
	for _, tc := range clusterKinds {
		xdstest.Parallel(t, tc.name, func(t *testing.T) {
			m, backend := newMesh(t), testutils.StartBackend(t, "b1")
			_, target := inZone(t, backend)
			m.set(chain(service, toCluster("c")), askForTLS(tc.of(backend, target)))
			cc := m.dial("xds:///"+service, xdsCreds(t))
			for _, k := range kinds {
				_, err := call(testutils.Context(t), cc, k)
				checkStatus(t, err, codes.Unavailable, refusal...)
			}
			xdstest.Equal(t, "RPCs that reached the backend in plaintext", 0, backend.Count())
			t.Run("not opted in", func(t *testing.T) { mustReach(t, m.dial("xds:///"+service), unary, backend) })
		})
	}
}

// waiting makes an RPC that waits for at most so long.
func waiting(t *testing.T, cc *grpc.ClientConn, k kind, most time.Duration) error {
	ctx, cancel := context.WithTimeout(testutils.Context(t), most)
	defer cancel()
	_, err := call(ctx, cc, k)
	return err
}

// A Cluster that begins to ask for TLS while RPCs run gets no RPC after the first that fails, also if its type
// changes at the same time, and serves again when it no longer asks.
func TestAClusterBeginsToAskForTLS(t *testing.T) {
	t.Parallel()
	under := func(b *testutils.Backend, s *corepb.TransportSocket) []proto.Message {
		return []proto.Message{
			xdsmsg.AggregateCluster("c", "under"), withSocket(xdsmsg.EDSCluster("under", ""), s), endpointsOf("under", b),
		}
	}
	single := func(b *testutils.Backend, s *corepb.TransportSocket) []proto.Message {
		return []proto.Message{withSocket(xdsmsg.EDSCluster("c", ""), s), endpointsOf("c", b)}
	}
	for _, tc := range []struct {
		name          string
		before, after func(*testutils.Backend, *corepb.TransportSocket) []proto.Message
	}{
		{"EDS", single, single},
		{"aggregate", under, under},
		{"EDS to aggregate", single, under},
		{"aggregate to EDS", under, single},
	} {
		xdstest.Parallel(t, tc.name, func(t *testing.T) {
			m, backend := newMesh(t), testutils.StartBackend(t, "b1")
			m.set(chain(service, toCluster("c")), tc.before(backend, nil))
			cc := m.dial("xds:///"+service, xdsCreds(t))
			mustReach(t, cc, unary, backend)
			m.set(tc.after(backend, tlsSocket()))
			untilFailed(t, cc, refusal...)
			before := backend.Count()
			for range 20 {
				for _, k := range kinds {
					_, err := call(testutils.Context(t), cc, k)
					checkStatus(t, err, codes.Unavailable, refusal...)
				}
			}
			xdstest.Equal(t, "RPCs that went out in plaintext after the change", 0, backend.Count()-before)
			m.set(tc.before(backend, nil))
			mustReach(t, cc, unary, backend)
		})
	}
}

// Copies and sessions are not sent in plaintext either.
func TestMirrorsAndSessionsAskForTLSToo(t *testing.T) {
	t.Parallel()
	inOneWay(t, "the resources stay the same")
	xdstest.Parallel(t, "mirror", func(t *testing.T) {
		m := newMesh(t)
		open, secret := testutils.StartBackend(t, "open"), testutils.StartBackend(t, "secret")
		route := with(toCluster("open"), `route {
			request_mirror_policies { cluster: "secret" } request_mirror_policies { cluster: "also-open" }
		}`)
		also := testutils.StartBackend(t, "also-open")
		m.set(chain(service, route))
		m.set(clusterOf("open", open), clusterOf("also-open", also), askForTLS(clusterOf("secret", secret)))
		cc := m.dial("xds:///"+service, xdsCreds(t))
		mustReachByEachKind(t, cc, open)
		xdstest.NoError(t, also.Wait(testutils.Context(t), len(kinds)))
		xdstest.Equal(t, "copies that went out in plaintext", 0, secret.Count())
	})
	xdstest.Parallel(t, "session", func(t *testing.T) {
		m, backend := newMesh(t), testutils.StartBackend(t, "b1")
		m.set(xdsmsg.DefaultListener(service, service, byCookie("")), xdsmsg.RouteConfig(service, service, toCluster("c")))
		serve := func(s *corepb.TransportSocket, endpoints *endpointpb.ClusterLoadAssignment) {
			m.set(withSocket(stickyCluster("c"), s), endpoints)
		}
		serve(nil, endpointsOf("c", backend))
		cc := m.dial("xds:///"+service, xdsCreds(t))
		var s session
		s.call(testutils.Context(t), t, cc, unary)
		ctx := metadata.AppendToOutgoingContext(testutils.Context(t), "cookie", s.cookie.Name+"="+s.cookie.Value)
		serve(tlsSocket(), draining("c", []*testutils.Backend{backend}, backend))
		until(t, cc, "failed", func(_ string, err error) bool { return err != nil })
		before := backend.Count()
		_, err := call(ctx, cc, unary)
		checkStatus(t, err, codes.Unavailable)
		xdstest.Equal(t, "RPCs of a session that went out in plaintext", 0, backend.Count()-before)
	})
}

// A Cluster that begins to ask for TLS and is rejected changes nothing, like any NACK (gRFC A88): RPCs go on in plaintext, unless the server
// has fail_on_data_errors. docs/tasks/tls.md warns of this.
func TestARejectedClusterDoesNotAddTLS(t *testing.T) {
	t.Parallel()
	for _, features := range [][]string{nil, {failOnDataErrors}} {
		xdstest.Parallel(t, strings.Join(features, ""), func(t *testing.T) {
			m, backend, after := newMesh(t, features...), testutils.StartBackend(t, "b1"), testutils.StartBackend(t, "b2")
			m.set(chain(service, toCluster("c")), asking("c", nil, backend))
			cc := m.dial("xds:///"+service, xdsCreds(t))
			mustReach(t, cc, unary, backend)
			m.set(asking("c", xdsmsg.UpstreamTLS("not-in-the-bootstrap", ""), backend))
			if features != nil {
				untilFailed(t, cc, `"c"`, "tls_certificate_provider_instance.instance_name")
				return
			}
			// When a later update is in use, the Cluster has been rejected.
			m.set(clusterOf("other", after))
			m.set(xdsmsg.RouteConfig(service, service, xdsmsg.PathRoute(emptyMethod, "other"), toCluster("c")))
			for ctx := testutils.Context(t); after.Count() == 0; {
				xdstest.NoError(t, cc.Invoke(ctx, emptyMethod, empty, new(testgrpc.Empty)))
			}
			mustReach(t, cc, unary, backend)
		})
	}
}
