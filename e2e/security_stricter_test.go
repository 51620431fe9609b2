package e2e_test

import (
	"testing"
	"time"

	tlspb "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// inSecurity are Clusters that get stricter: each asks for before and then for after. A server with a certificate for "a" and
// "b" is accepted by both.
var inSecurity = []struct {
	name          string
	before, after *tlspb.UpstreamTlsContext
}{
	{"names", xdsmsg.UpstreamTLS("", "default"), xdsmsg.UpstreamTLS("", "default", "a")},
	{"identity", xdsmsg.UpstreamTLS("", "default"), xdsmsg.UpstreamTLS("default", "default")},
}

// newStricterMesh is a mesh with a backend for inSecurity.
func newStricterMesh(t *testing.T) (*secureMesh, *testutils.Backend) {
	m := newSecureMesh(t)
	return m, secureBackend(t, "b", m.ca, false, forNames("a", "b"))
}

// A Cluster that gets stricter and names other endpoints at the same time gets no further RPC over its old connections, although
// nothing is heard of the endpoints. Streams that are open end.
func TestAClusterGetsStricterBeforeItsEndpointsAreKnown(t *testing.T) {
	t.Parallel()
	for _, tc := range inSecurity {
		xdstest.Parallel(t, tc.name, func(t *testing.T) {
			m, backend := newStricterMesh(t)
			m.keepSilent()
			m.set(chain(service, toCluster("c")), asking("c", tc.before, backend))
			cc := m.dial()
			mustReach(t, cc, unary, backend)
			open, err := openStream(testutils.Context(t), cc)
			xdstest.NoError(t, err)
			m.set(withTLS([]proto.Message{xdsmsg.EDSCluster("c", "never-there")}, tc.after))
			// Until an RPC is not answered for longer than a busy machine takes to answer it.
			for ctx := testutils.Context(t); waiting(t, cc, unary, 2*time.Second) == nil; {
				xdstest.NoError(t, ctx.Err())
			}
			_, err = open.Recv()
			checkStatus(t, err, codes.Unavailable, `cluster "c" asks for stricter security than this connection has`)
			before := backend.Count()
			for _, k := range kinds {
				checkStatus(t, waiting(t, cc, k, 20*time.Millisecond), codes.DeadlineExceeded)
			}
			xdstest.Equal(t, "RPCs that went over the old connection", 0, backend.Count()-before)
			m.set(withTLS([]proto.Message{xdsmsg.EDSCluster("c", "")}, tc.before))
			mustReach(t, cc, unary, backend)
		})
	}
}

// A Cluster that gets stricter serves over new connections, and no new RPC fails. Streams that are open on the old ones end.
func TestStreamsEndWhenAClusterGetsStricter(t *testing.T) {
	for _, tc := range inSecurity {
		t.Run(tc.name, func(t *testing.T) {
			overLinks(t, func(t *testing.T) {
				m, backend := newStricterMesh(t)
				m.set(chain(service, toCluster("c")), asking("c", tc.before, backend))
				cc := m.dial()
				mustReach(t, cc, unary, backend)
				open, err := openStream(testutils.Context(t), cc)
				xdstest.NoError(t, err)
				load := startLoad(t, cc)
				m.set(asking("c", tc.after, backend))
				_, err = open.Recv()
				checkStatus(t, err, codes.Unavailable, `cluster "c" asks for stricter security than this connection has`)
				load.await(t, backend)
				load.Stop(t)
			})
		})
	}
}
