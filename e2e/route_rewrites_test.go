package e2e_test

import (
	"testing"

	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/internal/testca"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// rewritingAuthority are the routes to a cluster "b" that rewrite the authority to "rewritten".
var rewritingAuthority = []struct{ name, action string }{
	{"host_rewrite_literal", `cluster: "b" host_rewrite_literal: "rewritten"`},
	{"host_rewrite_header", `cluster: "b" host_rewrite_header: "Host-To"`},
	{"auto_host_rewrite", `cluster: "b" auto_host_rewrite { value: true }`},
	{"host_rewrite_literal of a weighted cluster",
		`weighted_clusters { clusters { name: "b" weight { value: 1 } host_rewrite_literal: "rewritten" } }`},
}

// named are endpoints with a hostname.
func named(cluster, hostname string, backend *testutils.Backend) *endpointpb.ClusterLoadAssignment {
	endpoints := endpointsOf(cluster, backend)
	endpoints.GetEndpoints()[0].GetLbEndpoints()[0].GetEndpoint().Hostname = hostname
	return endpoints
}

// serveRewritten configures a service with a backend whose hostname is "rewritten", behind a route with the action.
func (m *mesh) serveRewritten(service, action string, backend *testutils.Backend) {
	m.t.Helper()
	m.set(chain(service, routeOf(`match { prefix: "" } route { %s }`, action)), xdsmsg.EDSCluster("b", ""), named("b", "rewritten", backend))
}

// gRFC A81, "xds_cluster_impl LB Policy Changes": a rewritten authority is checked against the server's certificate. An
// RPC whose authority is not in the certificate fails and does not reach the backend.
func TestAuthorityRewriteDoesNotGetAroundTLS(t *testing.T) {
	t.Parallel()
	for _, rewrite := range rewritingAuthority {
		for name, names := range map[string][]string{"in the certificate": {service, "rewritten"}, "not in it": {service}} {
			xdstest.Parallel(t, rewrite.name+", "+name, func(t *testing.T) {
				ca := testca.New(t)
				m, backend := newMesh(t, "trusted_xds_server"), secureBackend(t, "b", ca, false, forNames(names...))
				m.serveRewritten(service, rewrite.action, backend)
				cc := m.dial("xds:///"+service, grpc.WithTransportCredentials(credentials.NewClientTLSFromCert(ca.Pool(), "")))
				eachKind(t, func(t *testing.T, k kind) {
					before := backend.Count()
					r := callFor(metadata.AppendToOutgoingContext(testutils.Context(t), "host-to", "rewritten"), cc, k)
					if len(names) == 2 {
						if r.err != nil || backend.Last().Authority != "rewritten" {
							t.Errorf("authority %q: %v", backend.Last().Authority, r.err)
						}
						return
					}
					checkStatus(t, r.err, codes.Unavailable, "rewritten")
					if backend.Count() != before {
						t.Error("the RPC reached the backend")
					}
				})
			})
		}
	}
}
