package e2e_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	tlspb "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/tls/certprovider"
	"google.golang.org/grpc/metadata"
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

// auto_sni_san_validation holds for a server that is known by its IP address, too, wherever the address comes from:
// the certificate has to be for it. A server without a name is refused.
func TestServersKnownByTheirAddress(t *testing.T) {
	t.Parallel()
	inOneWay(t, "the resources stay the same")
	byName := forNames("localhost", "127.0.0.1")
	byAddress := &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	eds := func(hostname string) func(*testutils.Backend) []proto.Message {
		return func(b *testutils.Backend) []proto.Message {
			return []proto.Message{xdsmsg.EDSCluster("c", ""), named("c", hostname, b)}
		}
	}
	dns := func(b *testutils.Backend) []proto.Message {
		return []proto.Message{xdsmsg.InlineCluster("c", logicalDNS, xdsmsg.In("z", b.Addr()))}
	}
	const hosts = `auto_host_sni: true`
	for _, tc := range []struct {
		name    string
		context string // beside auto_sni_san_validation
		cluster func(*testutils.Backend) []proto.Message
		cert    *x509.Certificate
		want    string // the reason why RPCs fail; empty: they do not
	}{
		{"sni", `sni: "127.0.0.1"`, eds(""), byAddress, ""},
		{"sni, another certificate", `sni: "127.0.0.1"`, eds(""), byName, `is not for the server name "127.0.0.1"`},
		{"EDS", hosts, eds("127.0.0.1"), byAddress, ""},
		{"EDS, another certificate", hosts, eds("127.0.0.1"), byName, `is not for the server name "127.0.0.1"`},
		{"LOGICAL_DNS", hosts, dns, byAddress, ""},
		{"LOGICAL_DNS, another certificate", hosts, dns, byName, `is not for the server name "127.0.0.1"`},
		{"no name", hosts, eds(""), byName, "neither a server name nor a SAN matcher"},
	} {
		xdstest.Parallel(t, tc.name, func(t *testing.T) {
			m := newSecureMesh(t)
			template := *tc.cert
			backend := secureBackend(t, "b", m.ca, false, &template)
			m.set(chain(service, toCluster("c")),
				withTLS(tc.cluster(backend), with(xdsmsg.UpstreamTLS("", "default"), `auto_sni_san_validation: true %s`, tc.context)))
			cc := m.dial()
			if tc.want == "" {
				mustReachByEachKind(t, cc, backend)
				return
			}
			for _, k := range kinds {
				_, err := call(testutils.Context(t), cc, k)
				checkReason(t, err, tc.want)
			}
			if n := backend.Count(); n != 0 {
				t.Errorf("%d RPCs reached the backend", n)
			}
		})
	}
}

// Every type of cluster has the same security.
func TestSecurityOfEveryTypeOfCluster(t *testing.T) {
	t.Parallel()
	inOneWay(t, "the resources stay the same")
	for _, tc := range clusterKinds {
		xdstest.Parallel(t, tc.name, func(t *testing.T) {
			m := newSecureMesh(t)
			backend := secureBackend(t, "b", m.ca, true, forNames("a"))
			_, target := inZone(t, backend)
			m.set(chain(service, toCluster("c")))
			m.set(withTLS(tc.of(backend, target), xdsmsg.UpstreamTLS("default", "default", "a")))
			cc := m.dial()
			mustReachByEachKind(t, cc, backend)
			if peerOf(t, cc) == nil {
				t.Error("no TLS")
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
		{"expired", &x509.Certificate{
			DNSNames: []string{"a"}, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour),
		}, nil, []string{"expired", `DNS "a"`}},
		{"another CA", forNames("a"), func(t *testing.T, m *secureMesh) { m.ca = testca.New(t) }, []string{"unknown authority"}},
		{"missing files", forNames("a"), func(t *testing.T, m *secureMesh) {
			m.files = testca.NewFiles(t)
			m.providers["default"] = watcher(map[string]string{
				"ca_certificate_file": m.files.CA, "certificate_file": m.files.Cert, "private_key_file": m.files.Key,
			})
		}, []string{`certificate provider instance "default" (file_watcher)`, "CA_FILE", "no such file"}},
		{"a provider that fails", forNames("a"), func(_ *testing.T, m *secureMesh) {
			m.register("default", func(context.Context) (*certprovider.KeyMaterial, error) { return nil, errors.New("out of luck") })
		}, []string{`certificate provider instance "default"`, "out of luck"}},
		{"a provider that never answers", forNames("a"), func(_ *testing.T, m *secureMesh) {
			m.register("default", func(ctx context.Context) (*certprovider.KeyMaterial, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			})
		}, []string{`certificate provider instance "default"`, "did not answer within"}},
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

// gRFC A29, "xDS Protocol": a Cluster is validated whatever the credentials of the channel, and
// "CDS for Client Side Security": an instance has to be in the bootstrap.
func TestUnknownInstanceIsNACKed(t *testing.T) {
	everyWay(t)
	t.Parallel()
	m := newSecureMesh(t)
	backend := testutils.StartBackend(t, "b")
	m.set(chain(service, toCluster("c")), asking("c", xdsmsg.UpstreamTLS("other", "default"), backend))
	for _, cc := range []*grpc.ClientConn{m.dial(), m.dial(dialInsecure)} {
		mustFail(t, cc, `"c"`, "tls_certificate_provider_instance.instance_name", `"other"`, `"default"`)
	}
	if n := backend.Count(); n != 0 {
		t.Errorf("%d RPCs reached the backend", n)
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
		load.stop(t)
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
		load.stop(t)
		if n := seen.n.Load(); n != connected || n != 6 {
			t.Errorf("%d connections, want one for each of the 6 contexts", n)
		}
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
		load.stop(t)
	})
}

// The old connection serves until the new one can, but no longer than connections linger: a context that no server
// satisfies fails the RPCs.
func TestContextThatNoServerSatisfies(t *testing.T) {
	t.Parallel()
	m := newSecureMesh(t)
	backend := secureBackend(t, "b", m.ca, false, forNames("a"))
	m.set(chain(service, toCluster("c")), asking("c", xdsmsg.UpstreamTLS("", "default", "a"), backend))
	cc := m.dial()
	mustReach(t, cc, unary, backend)
	m.set(asking("c", xdsmsg.UpstreamTLS("", "default", "other"), backend))
	until(t, cc, "failed", func(_ string, err error) bool { return err != nil })
	before := backend.Count()
	for _, k := range kinds {
		_, err := call(testutils.Context(t), cc, k)
		checkReason(t, err, `DNS "a"`, `exact "other"`)
	}
	if n := backend.Count() - before; n != 0 {
		t.Errorf("%d RPCs went on over the old connection", n)
	}
	m.set(asking("c", xdsmsg.UpstreamTLS("", "default", "a"), backend))
	mustReach(t, cc, unary, backend)
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

// Sessions and mirrors go over connections of the same kind.
func TestSecurityOfSessionsAndMirrors(t *testing.T) {
	t.Parallel()
	context := xdsmsg.UpstreamTLS("default", "default", "a")
	xdstest.Parallel(t, "session", func(t *testing.T) {
		m := newSecureMesh(t)
		backend := secureBackend(t, "b", m.ca, true, forNames("a"))
		m.set(xdsmsg.DefaultListener(service, service, byCookie("")), xdsmsg.RouteConfig(service, service, toCluster("c")))
		m.set(withTLS([]proto.Message{stickyCluster("c")}, context), endpointsOf("c", backend))
		cc := m.dial()
		var s session
		s.call(testutils.Context(t), t, cc, unary)
		ctx := metadata.AppendToOutgoingContext(testutils.Context(t), "cookie", s.cookie.Name+"="+s.cookie.Value)
		// The endpoint is for sessions only, so that another channel connects for them alone.
		m.set(draining("c", []*testutils.Backend{backend}, backend))
		if id, err := call(ctx, m.dial(), unary, grpc.WaitForReady(true)); err != nil || id != backend.ID() {
			t.Errorf("answered by %q, error %v", id, err)
		}
	})
	xdstest.Parallel(t, "mirror", func(t *testing.T) {
		m := newSecureMesh(t)
		backend, copies := secureBackend(t, "b", m.ca, true, forNames("a")), secureBackend(t, "copies", m.ca, true, forNames("a"))
		m.set(chain(service, with(toCluster("c"), `route { request_mirror_policies { cluster: "copies" } }`)),
			asking("c", context, backend), asking("copies", context, copies))
		mustReach(t, m.dial(), unary, backend)
		xdstest.NoError(t, copies.Wait(testutils.Context(t), 1))
	})
}

// gRFC A29, "Programming API": not opting in "results in not using the xDS provided TLS
// configuration".
func TestChannelsThatDidNotOptIn(t *testing.T) {
	t.Parallel()
	m := newSecureMesh(t)
	backend := testutils.StartBackend(t, "b")
	m.set(chain(service, toCluster("c")), asking("c", xdsmsg.UpstreamTLS("default", "default", "a"), backend))
	cc := m.dial(dialInsecure)
	mustReachByEachKind(t, cc, backend)
}

// A server that wants TLS closes a connection in plaintext without a word. The error of RPCs says so, and who can mend it.
func TestErrorOfPlaintextToAServerWithTLS(t *testing.T) {
	t.Parallel()
	m, ca := newMesh(t), testca.New(t)
	backend := secureBackend(t, "b", ca, true, forNames("plain"))
	m.serve("plain", "c", backend)
	const wants = "as one does that wants TLS or mTLS"
	untilError(t, m.dial("xds:///plain"), []string{wants, "dial with credentials of google.golang.org/grpc/credentials/xds"})
	untilError(t, dialWith(t, "xds:///plain", m.bootstrap(), xdsCreds(t)), []string{wants, "the Cluster asks for no TLS", "ISTIO_MUTUAL"})
	tlsOnly := grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: ca.Pool(), ServerName: "plain"}))
	untilError(t, m.dial("xds:///plain", tlsOnly), []string{"the server wants a certificate of the client (mTLS)"})
}
