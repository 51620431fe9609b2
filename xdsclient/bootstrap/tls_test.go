package bootstrap

import (
	"context"
	"crypto/tls"
	"crypto/x509"
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
	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/internal/testca"
	"github.com/dynxds/dynxds/internal/xdstest"
)

const testTimeout = 20 * time.Second

// config is the credentials' configuration with these files.
func config(f testca.Files, refresh string) string {
	return fmt.Sprintf(`{"ca_certificate_file": %q, "certificate_file": %q, "private_key_file": %q, "refresh_interval": %q}`,
		f.CA, f.Cert, f.Key, refresh)
}

// tlsServer returns the management server at a port of this host, with credentials, and further keys of it.
func tlsServer(t *testing.T, port int, config string, more ...string) *Server {
	t.Helper()
	keys := append([]string{fmt.Sprintf(`"server_uri": "dns:///localhost:%d", "channel_creds": [{"type": "tls", "config": %s}]`, port, config)}, more...)
	return mustParse(t, `{"xds_servers": [{`+strings.Join(keys, ", ")+`}]}`).Servers[0]
}

// A server that cannot be trusted gets no RPC, and cannot fill logs and statuses with its texts. gRFC A65: without
// files "system-wide root certs are used".
func TestTLSServersThatAreRefused(t *testing.T) {
	t.Parallel()
	ca, dir := testca.New(t), testca.NewFiles(t)
	dir.Issue(ca)
	files, expired := config(dir, "60s"), testca.Expired()
	expired.Subject.CommonName = "old"
	for _, test := range []struct {
		config string
		server *x509.Certificate
		wants  []string
	}{
		{`{}`, &x509.Certificate{DNSNames: []string{"localhost"}}, []string{"unknown authority"}},
		{files, expired, []string{"expired", "is after " + expired.NotAfter.UTC().Format(time.RFC3339), "(the certificate of", "CN=old"}},
		{files, &x509.Certificate{DNSNames: []string{"example.com"}}, []string{"example.com"}},
		{files, &x509.Certificate{DNSNames: []string{strings.Repeat("long", 10_000)}}, []string{"longlong"}},
		{files, &x509.Certificate{DNSNames: []string{"two\nlines"}}, []string{"two", "lines"}},
	} {
		server := ca.ServerConfig()
		server.Certificates = []tls.Certificate{ca.Pair(test.server)}
		err := check(t, tlsServer(t, serveTLS(t, server), test.config))
		for _, want := range test.wants {
			if err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 10_000 || strings.Contains(err.Error(), `two\nlines`) {
				t.Errorf("got error %.10000v, want a short one with %s", err, want)
			}
		}
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
	s := tlsServer(t, port, config(dir, "0.000000001s"))
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
			s := tlsServer(t, serveTLS(t, server), config(dir, "600s"))
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
			port := serveTLS(t, config)
			// Another run of the test may have had the same port.
			warnings := func() []string {
				return logged.After(fmt.Sprintf("management server dns:///localhost:%d can be any workload", port))
			}
			before := len(warnings())
			s := tlsServer(t, port, "{"+keys+"}")
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

// seenBy serves, and has the metadata of each RPC.
func seenBy(t *testing.T, config *tls.Config) (port int, seen <-chan metadata.MD) {
	t.Helper()
	all := make(chan metadata.MD, 1)
	return serveTLS(t, config, grpc.UnaryInterceptor(
		func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			md, _ := metadata.FromIncomingContext(ctx)
			all <- md
			return handler(ctx, req)
		})), all
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
