package command

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/credentials/xds"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/testutils"
)

// secureMesh is "dynxds serve" with the service "backend", whose one endpoint has a certificate of
// examples/certs and wants one of its clients.
type secureMesh struct {
	t         *testing.T
	dir       string // the folder that is served
	certs     string
	plane     *process
	planeAddr string
	backend   *testutils.Backend
}

func startSecureMesh(t *testing.T, tlsOfService string) *secureMesh {
	t.Helper()
	m := &secureMesh{t: t, dir: t.TempDir(), certs: filepath.Join(t.TempDir(), "certs")}
	certs := exec.CommandContext(testutils.Context(t), "go", "run", "github.com/dynxds/dynxds/examples/certs", m.certs, "backend", "frontend")
	if out, err := certs.CombinedOutput(); err != nil {
		t.Fatalf("examples/certs: %v\n%s", err, out)
	}
	pair, err := tls.LoadX509KeyPair(m.file("backend.pem"), m.file("backend-key.pem"))
	xdstest.NoError(t, err)
	ca, err := os.ReadFile(m.file("ca.pem"))
	xdstest.NoError(t, err)
	config := &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: x509.NewCertPool()}
	config.ClientCAs.AppendCertsFromPEM(ca)
	m.backend = testutils.StartBackend(t, "backend", grpc.Creds(credentials.NewTLS(config)))
	m.say(tlsOfService)
	m.plane = startServe(t, m.dir, "--authority", "mesh")
	m.planeAddr = m.plane.address()
	return m
}

func (m *secureMesh) file(name string) string { return filepath.Join(m.certs, name) }

// say writes the document of the service.
func (m *secureMesh) say(tlsOfService string) {
	m.t.Helper()
	cmdtest.Write(m.t, m.dir, "services.yaml", fmt.Sprintf("kind: Service\nname: backend\nendpoints: [{address: %q}]\n%s\n", m.backend.Addr(), tlsOfService))
}

// dial is a client that leaves security to the control plane, with these arguments of "dynxds
// bootstrap".
func (m *secureMesh) dial(target string, args ...string) testpb.TestServiceClient {
	m.t.Helper()
	bootstrap := runOK(m.t, append([]string{"bootstrap", "--server", m.planeAddr, "--id", "client"}, args...)...)
	creds, err := xds.NewClientCredentials(xds.ClientOptions{FallbackCreds: insecure.NewCredentials()})
	xdstest.NoError(m.t, err)
	return testpb.NewTestServiceClient(cmdtest.DialXDS(m.t, target, []byte(bootstrap), grpc.WithTransportCredentials(creds)))
}

// all are the arguments of "dynxds bootstrap" for the roots and a certificate.
func (m *secureMesh) all() []string {
	return append(m.roots(), "--mesh-cert", m.file("frontend.pem"), "--mesh-key", m.file("frontend-key.pem"))
}

func (m *secureMesh) roots() []string { return []string{"--mesh-ca", m.file("ca.pem")} }

const mutualTLS = "tls: {mode: mutual, subjectAltNames: [spiffe://mesh/backend]}"

// gRFC A29: a service document with tls gives its clients mTLS, by plain names and under an
// authority. A client without a certificate or without providers fails, and the error says why.
func TestServeMutualTLS(t *testing.T) {
	t.Parallel()
	m := startSecureMesh(t, mutualTLS)
	for _, client := range []testpb.TestServiceClient{
		m.dial("xds:///backend", m.all()...), m.dial("xds://mesh/backend", append(m.all(), "--authority", "mesh")...),
	} {
		var p peer.Peer
		if _, err := client.UnaryCall(testutils.Context(t), &testpb.SimpleRequest{}, grpc.Peer(&p)); err != nil {
			t.Fatalf("the RPC failed: %v", err)
		}
		if info, ok := p.AuthInfo.(credentials.TLSInfo); !ok || info.SPIFFEID.String() != "spiffe://mesh/backend" {
			t.Errorf("the server is %v, want spiffe://mesh/backend", p.AuthInfo)
		}
	}
	for _, test := range []struct {
		name string
		args []string
		want []string
	}{
		{"without a certificate", m.roots(), []string{"no client certificate from certificate provider instance", "(file_watcher): it has none"}},
		{"without providers", nil, []string{"tls_certificate_provider_instance.instance_name", `the bootstrap lacks the certificate provider instance "default"`}},
	} {
		t.Run(test.name, func(t *testing.T) { m.expect(m.dial("xds:///backend", test.args...), test.want...) })
	}
	m.plane.drain()
}

// expect makes an RPC that fails with UNAVAILABLE, and texts in its error.
func (m *secureMesh) expect(client testpb.TestServiceClient, texts ...string) {
	m.t.Helper()
	_, err := client.UnaryCall(testutils.Context(m.t), &testpb.SimpleRequest{})
	if status.Code(err) != codes.Unavailable {
		m.t.Fatalf("the RPC ended with %v, want UNAVAILABLE", err)
	}
	cmdtest.ErrorHas(m.t, "the RPC", err, texts...)
	if strings.Contains(err.Error(), "correct it in the control plane") {
		m.t.Errorf("the RPC failed with %q, though the control plane is correct", err)
	}
}

// The server's certificate has to match subjectAltNames; a corrected document is obeyed without a
// restart.
func TestServeTLSWithAWrongSAN(t *testing.T) {
	t.Parallel()
	m := startSecureMesh(t, "tls: {mode: mutual, subjectAltNames: [{prefix: spiffe://mesh/frontend}]}")
	client := m.dial("xds:///backend", m.all()...)
	m.expect(client, "spiffe://mesh/backend", "spiffe://mesh/frontend")
	m.say(mutualTLS)
	m.plane.signal(syscall.SIGHUP)
	m.plane.logged(`"msg":"published"`, `"version":2`)
	if _, err := client.UnaryCall(testutils.Context(t), &testpb.SimpleRequest{}, grpc.WaitForReady(true)); err != nil {
		t.Errorf("after the correction the RPC failed: %v", err)
	}
	m.plane.drain()
}

// Mode simple presents no certificate, mode off is what the channel does by itself: the backend, which wants
// certificates, refuses both.
func TestServeTLSOfOtherModes(t *testing.T) {
	t.Parallel()
	for _, tlsOfService := range []string{"tls: {mode: simple, subjectAltNames: [spiffe://mesh/backend]}", "tls: {mode: off}"} {
		m := startSecureMesh(t, tlsOfService)
		m.expect(m.dial("xds:///backend", m.all()...))
		if n := m.backend.Count(); n != 0 {
			t.Errorf("%s: the backend got %d RPCs, want none", tlsOfService, n)
		}
		m.say(mutualTLS)
		m.plane.signal(syscall.SIGHUP)
		m.plane.logged(`"msg":"published"`, `"version":2`)
		// Until the change has arrived, the client has the old Cluster.
		if _, err := m.dial("xds:///backend", m.all()...).UnaryCall(testutils.Context(t), &testpb.SimpleRequest{}, grpc.WaitForReady(true)); err != nil {
			t.Errorf("in mode mutual the RPC failed: %v", err)
		}
		m.plane.drain()
	}
}
