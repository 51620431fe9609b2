package e2e_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"strings"
	"testing"
	"time"

	tlspb "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/tls/certprovider"
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
			if n := seen.n.Load(); n != 1 {
				t.Errorf("%d connections, want 1", n)
			}
		})
	}
}

// plugin is a certificate provider plugin that is not gRPC's.
type plugin struct {
	name     string
	material func(context.Context) (*certprovider.KeyMaterial, error)
}

func (p plugin) Name() string { return p.name }

func (p plugin) ParseConfig(any) (*certprovider.BuildableConfig, error) {
	return certprovider.NewBuildableConfig(p.name, nil, func(certprovider.BuildOptions) certprovider.Provider { return p }), nil
}

func (p plugin) KeyMaterial(ctx context.Context) (*certprovider.KeyMaterial, error) {
	return p.material(ctx)
}

func (p plugin) Close() {}

// register makes an instance of a plugin.
func (m *secureMesh) register(instance string, material func(context.Context) (*certprovider.KeyMaterial, error)) {
	p := plugin{protocol + m.t.Name(), material}
	certprovider.Register(p)
	m.providers[instance] = map[string]any{"plugin_name": p.name, "config": map[string]any{}}
}

// gRFC A29, "Certificate Provider Plugin Framework": any plugin of gRPC's registry.
func TestAnotherCertificateProvider(t *testing.T) {
	m := newSecureMesh(t)
	m.register("mine", func(context.Context) (*certprovider.KeyMaterial, error) {
		return &certprovider.KeyMaterial{Roots: m.ca.Pool(), Certs: []tls.Certificate{m.ca.Pair(forNames("client"))}}, nil
	})
	backend := secureBackend(t, "b", m.ca, true, forNames("a"))
	m.set(chain(service, toCluster("c")), asking("c", xdsmsg.UpstreamTLS("mine", "mine", "a"), backend))
	if mustReach(t, m.dial(), unary, backend); backend.Count() != 1 {
		t.Errorf("%d RPCs", backend.Count())
	}
}

// checkReason checks why a connection failed, which gRPC quotes.
func checkReason(t *testing.T, err error, texts ...string) {
	t.Helper()
	checkStatus(t, err, codes.Unavailable)
	for _, text := range texts {
		if !strings.Contains(strings.ReplaceAll(err.Error(), `\"`, `"`), text) {
			t.Errorf("error does not mention %q:\n%v", text, err)
		}
	}
}

// Whatever goes wrong fails RPCs with UNAVAILABLE and says why. Nothing is sent in plaintext.
func TestHandshakesThatFail(t *testing.T) {
	inOneWay(t, "handshakes are with the backend")
	const failed = `TLS of cluster "c": `
	tlsContext := xdsmsg.UpstreamTLS("default", "default", "a")
	for _, tc := range []struct {
		name  string
		cert  *x509.Certificate             // the backend's; nil: it is in plaintext
		setup func(*testing.T, *secureMesh) // nil: as it is
		want  []string                      // "CA_FILE" stands for the file's path
	}{
		{"a SAN that does not match", forNames("b"), nil, []string{`DNS "b"`, `exact "a"`}},
		{"missing files", forNames("a"), func(t *testing.T, m *secureMesh) {
			m.files = testca.NewFiles(t)
			m.providers["default"] = watcher(map[string]string{
				"ca_certificate_file": m.files.CA, "certificate_file": m.files.Cert, "private_key_file": m.files.Key,
			})
		}, []string{`certificate provider instance "default" (file_watcher)`, "CA_FILE", "no such file"}},
		{"a server in plaintext", nil, nil, []string{"does not speak TLS", "plaintext"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := newSecureMesh(t) // Not in parallel: registering plugins must not be.
			if tc.setup != nil {
				tc.setup(t, m)
			}
			backend := testutils.StartBackend(t, "plain")
			if tc.cert != nil {
				backend = secureBackend(t, "b", m.ca, true, tc.cert)
			}
			want := []string{failed}
			for _, text := range tc.want {
				want = append(want, strings.ReplaceAll(text, "CA_FILE", m.files.CA))
			}
			m.set(chain(service, toCluster("c")), asking("c", tlsContext, backend))
			cc := m.dial()
			for _, k := range kinds {
				_, err := call(testutils.Context(t), cc, k)
				checkReason(t, err, want...)
			}
			if n := backend.Count(); n != 0 {
				t.Errorf("%d RPCs reached the backend", n)
			}
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
		if n := seen.n.Load(); n != 1 {
			t.Errorf("%d connections to the backend that was there, want 1", n)
		}
	})
}

// A new context makes a new connection before the old one is dropped, and no RPC fails. What
// has nothing to do with security makes none.
func TestContextChangesUnderLoad(t *testing.T) {
	overLinks(t, func(t *testing.T) {
		m, seen := newSecureMesh(t), new(connections)
		backend := secureBackend(t, "b", m.ca, false, forNames("a", "b"), grpc.StatsHandler(seen))
		m.set(chain(service, toCluster("c")), asking("c", xdsmsg.UpstreamTLS("", "default", "a"), backend))
		cc := m.dial()
		mustReach(t, cc, unary, backend)
		load := startLoad(t, cc)
		for i := range 5 {
			m.set(asking("c", with(xdsmsg.UpstreamTLS("", "default", "b"), "sni: %q", strings.Repeat("a", i+1)), backend))
			for want := int32(i + 2); seen.n.Load() < want; {
				load.await(t, backend)
			}
		}
		connected := seen.n.Load()
		same := asking("c", with(xdsmsg.UpstreamTLS("", "default", "b"), `sni: "aaaaa"`), backend)
		with(same[0], "connect_timeout { seconds: 1 }")
		m.set(same)
		load.await(t, backend)
		load.Stop(t)
		if n := seen.n.Load(); n != connected || n != 6 {
			t.Errorf("%d connections, want one for each of the 6 contexts", n)
		}
	})
}

// Each cluster under an aggregate one has its own security. The transport socket of the aggregate Cluster has no
// effect.
func TestSecurityUnderAnAggregate(t *testing.T) {
	t.Parallel()
	m := newSecureMesh(t)
	secret, open := secureBackend(t, "secret", m.ca, true, forNames("a")), testutils.StartBackend(t, "open")
	context := xdsmsg.UpstreamTLS("default", "default", "a")
	aggregate := xdsmsg.AggregateCluster("c", "secret", "open")
	aggregate.TransportSocket = xdsmsg.TLSSocket(xdsmsg.UpstreamTLS("", "", "another"))
	m.set(chain(service, toCluster("c")), aggregate, asking("secret", context, secret), clusterOf("open", open))
	cc := m.dial()
	mustReach(t, cc, unary, secret)
	secret.Stop()
	untilReached(t, cc, open)
	xdstest.NoError(t, secret.Restart())
	untilReached(t, cc, secret)
}

// An expired certificate of the client: the error says which, since when and where it is from, and the files are read again
// before the refresh interval is over; so are roots that a server's certificate does not chain to.
func TestStaleFilesAreReadAgainSoon(t *testing.T) {
	t.Parallel()
	inOneWay(t, "files change, and no resource")
	expired := testca.Expired()
	for _, tc := range []struct {
		name        string
		stale       func(m *secureMesh) // writes the files of the start; the provider has read them once a connection has failed
		want        string
		alsoWantCrt bool
	}{
		{"an expired certificate", func(m *secureMesh) { m.files.IssueFor(m.ca, expired) }, "which expired at " + expired.NotAfter.UTC().Format(time.RFC3339), true},
		{"roots without the server's", func(m *secureMesh) { m.files.Write(m.files.CA, testca.New(t).PEM()) }, "unknown authority", false},
	} {
		xdstest.Parallel(t, tc.name, func(t *testing.T) {
			m := newSecureMesh(t)
			m.providers["default"] = watcher(map[string]string{
				"ca_certificate_file": m.files.CA, "certificate_file": m.files.Cert, "private_key_file": m.files.Key, "refresh_interval": "600s",
			})
			tc.stale(m)
			config := serverTLS(m.ca, true, forNames("a"))
			backend := testutils.StartBackend(t, "b", grpc.Creds(credentials.NewTLS(config)))
			m.set(chain(service, toCluster("c")), asking("c", xdsmsg.UpstreamTLS("default", "default", "a"), backend))
			cc := m.dial()
			want := []string{`TLS of cluster "c": `, tc.want}
			if tc.alsoWantCrt {
				want = append(want, `certificate provider instance "default" (file_watcher)`, "(replace certificate_file "+m.files.Cert+")")
			}
			_, err := call(testutils.Context(t), cc, unary)
			checkReason(t, err, want...)
			m.files.Issue(m.ca)
			mustReachByEachKind(t, cc, backend)
		})
	}
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
