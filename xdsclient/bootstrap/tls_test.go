package bootstrap

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/dynxds/dynxds/internal/testca"
	"github.com/dynxds/dynxds/internal/xdstest"
)

const testTimeout = 20 * time.Second

// config is the credentials' configuration with these files.
func config(f testca.Files, refresh string) string {
	return fmt.Sprintf(`{"ca_certificate_file": %q, "certificate_file": %q, "private_key_file": %q, "refresh_interval": %q}`,
		f.CA, f.Cert, f.Key, refresh)
}

func buildTLS(t *testing.T, config string) credentials.TransportCredentials {
	t.Helper()
	build, err := tlsBuilder{}.ParseConfig(json.RawMessage(config))
	if err != nil {
		t.Fatalf("ParseConfig(%s) failed: %v", config, err)
	}
	bundle, _, err := build()
	if err != nil {
		t.Fatalf("building failed: %v", err)
	}
	return bundle.TransportCredentials()
}

// handshake shakes hands with a server that uses config and returns the error
// of the client or, if it has none, of the server. (In TLS 1.3 a client ends
// first and cannot know that its certificate will be refused.)
func handshake(t *testing.T, creds credentials.TransportCredentials, name string, config *tls.Config) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	// Not a net.Pipe, on which two alerts that cross would block each other.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	xdstest.NoError(t, err)
	defer listener.Close()
	serverErr := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			defer conn.Close()
			err = tls.Server(conn, config).HandshakeContext(ctx)
		}
		serverErr <- err
	}()
	conn, err := net.Dial("tcp", listener.Addr().String())
	xdstest.NoError(t, err)
	_, _, err = creds.ClientHandshake(ctx, name, conn)
	if err != nil {
		conn.Close()
		<-serverErr
		return err
	}
	defer conn.Close()
	return <-serverErr
}

// gRFC A65: without files "system-wide root certs are used".
func TestTLSWithoutFilesTrustsTheSystem(t *testing.T) {
	t.Parallel()
	err := handshake(t, buildTLS(t, `{}`), "localhost", testca.New(t).ServerConfig())
	if err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("got error %v, want the server's authority to be unknown", err)
	}
}

func TestTLSChecksTheServerName(t *testing.T) {
	t.Parallel()
	ca, dir := testca.New(t), testca.NewFiles(t)
	dir.Issue(ca)
	creds := buildTLS(t, config(dir, "60s"))
	if err := handshake(t, creds, "example.com", ca.ServerConfig()); err == nil {
		t.Error("a certificate for localhost was good enough for example.com")
	}
	if err := handshake(t, creds.Clone(), "localhost", ca.ServerConfig()); err != nil {
		t.Errorf("a clone cannot do what the original can: %v", err)
	}
}

// An expired certificate of the server is named, with the time.
func TestTLSNamesTheServersExpiredCertificate(t *testing.T) {
	t.Parallel()
	ca, dir := testca.New(t), testca.NewFiles(t)
	dir.Issue(ca)
	server, expired := ca.ServerConfig(), testca.Expired()
	expired.Subject.CommonName = "old"
	server.Certificates = []tls.Certificate{ca.Pair(expired)}
	err := handshake(t, buildTLS(t, config(dir, "60s")), "localhost", server)
	for _, want := range []string{"expired", "is after " + expired.NotAfter.UTC().Format(time.RFC3339), `(the certificate of "CN=old")`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want it to contain %s", err, want)
		}
	}
}

// A server cannot fill logs and statuses with its texts.
func TestTLSErrorsAreBounded(t *testing.T) {
	t.Parallel()
	ca, dir := testca.New(t), testca.NewFiles(t)
	dir.Issue(ca)
	server := ca.ServerConfig()
	server.Certificates = []tls.Certificate{ca.Pair(&x509.Certificate{DNSNames: []string{strings.Repeat("long", 10_000)}})}
	err := handshake(t, buildTLS(t, config(dir, "60s")), "localhost", server)
	if err == nil || !strings.Contains(err.Error(), "longlong") || len(err.Error()) > 10_000 {
		t.Errorf("got error %.200v, want a short one with the server's name", err)
	}
	server.Certificates = []tls.Certificate{ca.Pair(&x509.Certificate{DNSNames: []string{"two\nlines"}})}
	if err := handshake(t, buildTLS(t, config(dir, "60s")), "localhost", server); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("got error %q, want one on one line", err)
	}
}

// The whole way: bootstrap, credentials, a real gRPC server that wants a client
// certificate, and the next connection after both sides got new certificates.
func TestTLSOverGRPC(t *testing.T) {
	t.Parallel()
	ca, dir := testca.New(t), testca.NewFiles(t)
	dir.Issue(ca)
	var current atomic.Pointer[tls.Config]
	current.Store(ca.ServerConfig())
	port := serveTLS(t, &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return current.Load(), nil }})
	s := mustParse(t, fmt.Sprintf(`{"xds_servers": [{"server_uri": "dns:///localhost:%d", "channel_creds": [{"type": "tls", "config": %s}]}]}`,
		port, config(dir, "0.000000001s"))).Servers[0]
	credentials, release, err := s.DialOptions()
	xdstest.NoError(t, err)
	defer release()
	if err := checkWith(t, s, credentials); err != nil {
		t.Fatalf("the first connection failed: %v", err)
	}
	ca = testca.New(t)
	current.Store(ca.ServerConfig())
	if err := checkWith(t, s, credentials); err == nil {
		t.Fatal("a client with the old certificates reached a server with new ones")
	}
	dir.Issue(ca)
	if err := checkWith(t, s, credentials); err != nil {
		t.Fatalf("the connection after the rotation failed: %v", err)
	}
}

// Certificates that do not do are read again soon, and an expired one of the client is named.
func TestTLSFilesAreReadAgainSoon(t *testing.T) {
	t.Parallel()
	expired := testca.Expired()
	for _, test := range []struct {
		given   string
		stale   func(testca.Files, *testca.CA)
		version uint16
		want    []string
	}{
		{"an expired certificate", func(f testca.Files, ca *testca.CA) { f.IssueFor(ca, expired) }, tls.VersionTLS13, []string{"expired at " + expired.NotAfter.UTC().Format(time.RFC3339), "CERT"}},
		{"an expired certificate in TLS 1.2", func(f testca.Files, ca *testca.CA) { f.IssueFor(ca, expired) }, tls.VersionTLS12, []string{"expired at", "CERT"}},
		{"a certificate of another authority", func(f testca.Files, ca *testca.CA) {
			f.Issue(testca.New(t))
			f.Write(f.CA, ca.PEM())
		}, tls.VersionTLS13, []string{"may have refused the client's certificate"}},
		{"other roots", func(f testca.Files, ca *testca.CA) { f.Write(f.CA, testca.New(t).PEM()) }, tls.VersionTLS13, []string{"unknown authority"}},
	} {
		xdstest.Parallel(t, test.given, func(t *testing.T) {
			ca, dir := testca.New(t), testca.NewFiles(t)
			dir.Issue(ca)
			test.stale(dir, ca)
			server := ca.ServerConfig()
			server.MaxVersion = test.version
			s := mustParse(t, fmt.Sprintf(`{"xds_servers": [{"server_uri": "dns:///localhost:%d", "channel_creds": [{"type": "tls", "config": %s}]}]}`,
				serveTLS(t, server), config(dir, "600s"))).Servers[0]
			credentials, release, err := s.DialOptions()
			xdstest.NoError(t, err)
			defer release()
			err = checkWith(t, s, credentials)
			if err == nil {
				t.Fatal("the first connection succeeded")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), strings.ReplaceAll(want, "CERT", "certificate_file "+dir.Cert)) {
					t.Errorf("got error %v, want it to contain %s", err, want)
				}
			}
			dir.Issue(ca)
			deadline := time.Now().Add(testTimeout)
			for err = checkWith(t, s, credentials); err != nil && time.Now().Before(deadline); err = checkWith(t, s, credentials) {
				time.Sleep(50 * time.Millisecond)
			}
			if err != nil {
				t.Errorf("the last connection failed: %v", err)
			}
		})
	}
}

// gRFC A87: with a bundle map the server is known by its SPIFFE ID instead of its host name, and ca_certificate_file is ignored. The map alone says nothing
// of which workload the management server is: server_spiffe_ids does, and without the key the log warns.
func TestServerSPIFFEIDs(t *testing.T) {
	t.Parallel()
	ca, dir, other := testca.New(t), testca.NewFiles(t), testca.NewFiles(t)
	dir.Issue(ca)
	other.Issue(testca.New(t))
	domain := spiffeid.RequireTrustDomainFromString("example.org")
	bundle, err := spiffebundle.FromX509Authorities(domain, []*x509.Certificate{ca.Cert()}).Marshal()
	xdstest.NoError(t, err)
	dir.Write(dir.CA, fmt.Appendf(nil, `{"trust_domains": {"example.org": %s}}`, bundle))
	const notListed = "certificate check failure"
	for _, test := range []struct {
		given, ids, id string
		fails          string
	}{
		{"the ID", `["spiffe://example.org/xds"]`, "spiffe://example.org/xds", ""},
		{"one of several", `["spiffe://example.org/other", "spiffe://example.org/xds"]`, "spiffe://example.org/xds", ""},
		{"another workload", `["spiffe://example.org/xds"]`, "spiffe://example.org/shop", notListed},
		{"an ID below", `["spiffe://example.org/xds"]`, "spiffe://example.org/xds/a", notListed},
		{"all below", `["spiffe://example.org/ns/mesh/*"]`, "spiffe://example.org/ns/mesh/xds/1", ""},
		{"not below", `["spiffe://example.org/ns/mesh/*"]`, "spiffe://example.org/ns/meshes/xds", notListed},
		{"not below, but above", `["spiffe://example.org/ns/mesh/*"]`, "spiffe://example.org/ns/mesh", notListed},
		{"no IDs", ``, "spiffe://example.org/shop", ""},
		{"another trust domain", ``, "spiffe://other.org/xds", "bundle for trust domain"},
		{"no SPIFFE ID", ``, "", "SPIFFE"},
	} {
		xdstest.Parallel(t, test.given, func(t *testing.T) {
			config := ca.ServerConfig()
			uri, err := url.Parse(test.id)
			xdstest.NoError(t, err)
			if test.id != "" {
				config.Certificates = []tls.Certificate{ca.Pair(&x509.Certificate{URIs: []*url.URL{uri}})}
			}
			keys := fmt.Sprintf(`"spiffe_trust_bundle_map_file": %q, "ca_certificate_file": %q, "certificate_file": %q, "private_key_file": %q`, dir.CA, other.CA, dir.Cert, dir.Key)
			if test.ids != "" {
				keys += `, "server_spiffe_ids": ` + test.ids
			}
			target := fmt.Sprintf("dns:///localhost:%d", serveTLS(t, config))
			// Another run of the test may have had the same port.
			warnings := func() []string { return logged.After("management server " + target + " can be any workload") }
			before := len(warnings())
			s := mustParse(t, fmt.Sprintf(`{"xds_servers": [{"server_uri": %q, "channel_creds": [{"type": "tls", "config": {%s}}]}]}`, target, keys)).Servers[0]
			switch err := check(t, s); {
			case test.fails == "":
				xdstest.NoError(t, err)
			case err == nil || !strings.Contains(err.Error(), test.fails):
				t.Errorf("got error %v, want %q", err, test.fails)
			}
			got := warnings()[before:]
			if want := test.ids == ""; want != (len(got) == 1) || want && !strings.Contains(got[0], "xds_servers[0].channel_creds[0].config.server_spiffe_ids") {
				t.Errorf("logged %q", got)
			}
		})
	}
}

// serveTLS runs a gRPC server on localhost until the test ends.
func serveTLS(t *testing.T, config *tls.Config, opts ...grpc.ServerOption) (port int) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	xdstest.NoError(t, err)
	server := grpc.NewServer(append(opts, grpc.Creds(credentials.NewTLS(config)))...)
	healthpb.RegisterHealthServer(server, health.NewServer())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-done
	})
	return listener.Addr().(*net.TCPAddr).Port
}
