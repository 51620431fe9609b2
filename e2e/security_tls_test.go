package e2e_test

import (
	"crypto/tls"
	"testing"

	tlspb "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/testca"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// peerOf makes an RPC and returns what the client knows of the server's identity: nil without
// TLS.
func peerOf(t *testing.T, cc *grpc.ClientConn) *credentials.TLSInfo {
	t.Helper()
	var p peer.Peer
	if _, err := call(testutils.Context(t), cc, unary, grpc.Peer(&p), grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return nil
	}
	return &info
}

// gRFC A29 (mTLS, TLS, fallback credentials), A87 (SPIFFE) and A101 (server names), from the
// control plane to the RPC.
func TestModesOfSecurity(t *testing.T) {
	everyWay(t)
	t.Parallel()
	byServerName := func(_ *testing.T, m *secureMesh) *tls.Config {
		right, wrong := m.ca.Pair(forNames("right.example.com")), m.ca.Pair(forNames("wrong.example.com"))
		return &tls.Config{GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if h.ServerName == "right.example.com" {
				return &right, nil
			}
			return &wrong, nil
		}}
	}
	for _, tc := range []struct {
		name    string
		context *tlspb.UpstreamTlsContext
		server  func(*testing.T, *secureMesh) *tls.Config // nil: plaintext
		id      string                                    // the SPIFFE ID
	}{
		{"fallback credentials", nil, nil, ""},
		{"TLS", xdsmsg.UpstreamTLS("", "default", "a"),
			func(_ *testing.T, m *secureMesh) *tls.Config { return serverTLS(m.ca, false, forNames("a")) }, ""},
		{"mTLS", xdsmsg.UpstreamTLS("default", "default", "a"),
			func(_ *testing.T, m *secureMesh) *tls.Config { return serverTLS(m.ca, true, forNames("a")) }, ""},
		{"SPIFFE", xdsmsg.UpstreamTLS("default", "spiffe", "spiffe://domain/a"), func(t *testing.T, m *secureMesh) *tls.Config {
			m.files.Write(m.files.CA, bundleMap(t, "domain", m.ca))
			m.providers["spiffe"] = watcher(map[string]string{"spiffe_trust_bundle_map_file": m.files.CA})
			return serverTLS(m.ca, true, forID(t, "spiffe://domain/a"))
		}, "spiffe://domain/a"},
		{"server name", with(xdsmsg.UpstreamTLS("", "default"), `sni: "right.example.com" auto_sni_san_validation: true`), byServerName, ""},
		{"host name of the endpoint", with(xdsmsg.UpstreamTLS("", "default"), `auto_host_sni: true auto_sni_san_validation: true`), byServerName, ""},
	} {
		xdstest.Parallel(t, tc.name, func(t *testing.T) {
			m, seen := newSecureMesh(t), new(connections)
			opts := []grpc.ServerOption{grpc.StatsHandler(seen)}
			if tc.server != nil {
				opts = append(opts, grpc.Creds(credentials.NewTLS(tc.server(t, m))))
			}
			backend := testutils.StartBackend(t, "b", opts...)
			m.set(chain(service, toCluster("c")),
				withTLS([]proto.Message{xdsmsg.EDSCluster("c", ""), named("c", "right.example.com", backend)}, tc.context))
			cc := m.dial()
			mustReachByEachKind(t, cc, backend)
			info := peerOf(t, cc)
			switch {
			case (info != nil) != (tc.server != nil):
				t.Errorf("TLS: %t, want %t", info != nil, tc.server != nil)
			case tc.id != "" && (info.SPIFFEID == nil || info.SPIFFEID.String() != tc.id):
				t.Errorf("SPIFFE ID %v, want %s", info.SPIFFEID, tc.id)
			}
			xdstest.Equal(t, "connections", 1, seen.n.Load())
		})
	}
}

// Identity and roots rotate under load: the connection stays, new connections have the new
// material, and no RPC fails.
func TestRotationUnderLoad(t *testing.T) {
	overLinks(t, func(t *testing.T) {
		m, seen := newSecureMesh(t), new(connections)
		before := secureBackend(t, "before", m.ca, true, forNames("a"), grpc.StatsHandler(seen))
		context := xdsmsg.UpstreamTLS("default", "default", "a")
		m.set(chain(service, toCluster("c")), asking("c", context, before))
		cc := m.dial()
		mustReach(t, cc, unary, before)
		load := startLoad(t, cc)
		for range 5 {
			m.files.Issue(m.ca)
			load.await(t, before)
		}
		// A new CA, whose servers come into use when the clients trust it.
		newCA := testca.New(t)
		after := secureBackend(t, "after", newCA, true, forNames("a"))
		m.files.Issue(newCA)
		m.set(endpointsOf("c", before, after))
		load.await(t, before, after)
		m.set(endpointsOf("c", after))
		load.await(t, after)
		load.Stop(t)
		xdstest.Equal(t, "connections to the backend that was there", 1, seen.n.Load())
	})
}

// A cluster moves from plaintext to mTLS, with other servers, and no RPC fails.
func TestMoveToMutualTLSUnderLoad(t *testing.T) {
	overLinks(t, func(t *testing.T) {
		m := newSecureMesh(t)
		open, secret := testutils.StartBackend(t, "open"), secureBackend(t, "secret", m.ca, true, forNames("a"))
		m.set(chain(service, toCluster("c")), clusterOf("c", open))
		cc := m.dial()
		mustReach(t, cc, unary, open)
		load := startLoad(t, cc)
		m.set(withTLS([]proto.Message{xdsmsg.EDSCluster("c", "secret")}, xdsmsg.UpstreamTLS("default", "default", "a")),
			endpointsOf("secret", secret))
		load.await(t, secret)
		load.Stop(t)
	})
}
