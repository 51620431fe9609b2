package bootstrap

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

const testTimeout = 20 * time.Second

// testCA is a certificate authority.
type testCA struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newCA(t *testing.T) *testCA {
	ca := &testCA{t: t}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "test CA"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	}
	ca.cert, ca.key, ca.pem = ca.sign(template)
	return ca
}

// sign makes a certificate, signed by itself if the CA has none yet.
func (ca *testCA) sign(template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey, []byte) {
	ca.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		ca.t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(1)
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := ca.cert, ca.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		ca.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		ca.t.Fatal(err)
	}
	return cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// leaf makes a certificate for localhost, usable by clients and servers, and its
// key.
func (ca *testCA) leaf() (certPEM, keyPEM []byte) {
	ca.t.Helper()
	_, key, certPEM := ca.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "test leaf"}, DNSNames: []string{"localhost"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	})
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		ca.t.Fatal(err)
	}
	return certPEM, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func (ca *testCA) serverConfig() *tls.Config {
	ca.t.Helper()
	pair, err := tls.X509KeyPair(ca.leaf())
	if err != nil {
		ca.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	return &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: pool,
		ClientAuth: tls.RequireAndVerifyClientCert, NextProtos: []string{"h2"},
	}
}

// certDir holds the files of a client.
type certDir struct {
	t          *testing.T
	ca, crt, k string
}

func newCertDir(t *testing.T) certDir {
	dir := t.TempDir()
	return certDir{t, filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
}

func (d certDir) write(path string, data []byte) {
	d.t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		d.t.Fatal(err)
	}
}

// issue writes files of the CA.
func (d certDir) issue(ca *testCA) {
	d.t.Helper()
	crt, key := ca.leaf()
	d.write(d.ca, ca.pem)
	d.write(d.crt, crt)
	d.write(d.k, key)
}

func (d certDir) config(refresh string) string {
	return fmt.Sprintf(`{"ca_certificate_file": %q, "certificate_file": %q, "private_key_file": %q, "refresh_interval": %q}`,
		d.ca, d.crt, d.k, refresh)
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
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = creds.ClientHandshake(ctx, name, conn)
	if err != nil {
		conn.Close()
		<-serverErr
		return err
	}
	defer conn.Close()
	return <-serverErr
}

// gRFC A65: refresh_interval is "how often to re-read the certificate files".
func TestTLSRereadsFilesAtTheRefreshInterval(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		given, config string
		interval      time.Duration
	}{
		{"given", "60s", time.Minute},
		{"default", "", 10 * time.Minute},
	} {
		t.Run(test.given, func(t *testing.T) {
			t.Parallel()
			dir := newCertDir(t)
			synctest.Test(t, func(t *testing.T) {
				oldCA, newCA := newCA(t), newCA(t)
				dir.issue(oldCA)
				config := dir.config(test.config)
				if test.config == "" {
					config = strings.Replace(config, `""`, "null", 1)
				}
				creds := buildTLS(t, config)
				if err := handshake(t, creds, "localhost", oldCA.serverConfig()); err != nil {
					t.Fatalf("mutual TLS failed: %v", err)
				}

				dir.issue(newCA)
				time.Sleep(test.interval - time.Nanosecond)
				if err := handshake(t, creds, "localhost", newCA.serverConfig()); err == nil {
					t.Error("the files were read again before the interval was over")
				}
				time.Sleep(time.Nanosecond)
				if err := handshake(t, creds, "localhost", newCA.serverConfig()); err != nil {
					t.Errorf("the files were not read again after the interval: %v", err)
				}
			})
		})
	}
}

func TestTLSKeepsTheLastGoodFiles(t *testing.T) {
	t.Parallel()
	dir := newCertDir(t)
	synctest.Test(t, func(t *testing.T) {
		oldCA, newCA := newCA(t), newCA(t)
		dir.issue(oldCA)
		creds := buildTLS(t, dir.config("60s"))
		server := oldCA.serverConfig()
		if err := handshake(t, creds, "localhost", server); err != nil {
			t.Fatalf("mutual TLS failed: %v", err)
		}

		// Given files of which only one has been replaced yet,
		crt, key := newCA.leaf()
		dir.write(dir.crt, crt)
		time.Sleep(time.Minute)
		if err := handshake(t, creds, "localhost", server); err != nil {
			t.Errorf("a certificate that does not fit its key replaced a good one: %v", err)
		}
		// the next connection finds the rest of them.
		dir.write(dir.k, key)
		dir.write(dir.ca, newCA.pem)
		if err := handshake(t, creds, "localhost", newCA.serverConfig()); err != nil {
			t.Errorf("the files were not read again after a failed attempt: %v", err)
		}
	})
}

func TestTLSFileErrors(t *testing.T) {
	t.Parallel()
	ca := newCA(t)
	crt, key := ca.leaf()
	_, otherKey := ca.leaf()
	for _, test := range []struct {
		given   string
		prepare func(certDir)
		want    func(certDir) string
	}{
		{"no CA file", func(d certDir) { os.Remove(d.ca) },
			func(d certDir) string { return "ca_certificate_file: stat " + d.ca + ": no such file or directory" }},
		{"a CA file without certificates", func(d certDir) { d.write(d.ca, key) },
			func(d certDir) string {
				return "ca_certificate_file " + d.ca + ": expected certificates in PEM form, found none"
			}},
		{"no certificate", func(d certDir) { os.Remove(d.crt) },
			func(d certDir) string { return "certificate_file: stat " + d.crt + ": no such file or directory" }},
		{"no key", func(d certDir) { os.Remove(d.k) },
			func(d certDir) string { return "private_key_file: stat " + d.k + ": no such file or directory" }},
		{"another certificate's key", func(d certDir) { d.write(d.k, otherKey) },
			func(d certDir) string {
				return "certificate_file " + d.crt + " with private_key_file " + d.k + ": tls: private key does not match public key"
			}},
		{"a directory", func(d certDir) { os.Remove(d.k); os.Mkdir(d.k, 0o700) },
			func(d certDir) string { return "private_key_file: " + d.k + " is not a regular file" }},
		{"a pipe that nobody writes to", func(d certDir) { os.Remove(d.k); syscall.Mkfifo(d.k, 0o600) },
			func(d certDir) string { return "private_key_file: " + d.k + " is not a regular file" }},
		{"a file that is too large", func(d certDir) { d.write(d.crt, bytes.Repeat([]byte("a"), 1<<20+1)) },
			func(d certDir) string {
				return "certificate_file: " + d.crt + " has more than the 1048576 bytes that are allowed"
			}},
	} {
		t.Run(test.given, func(t *testing.T) {
			t.Parallel()
			dir := newCertDir(t)
			dir.write(dir.ca, ca.pem)
			dir.write(dir.crt, crt)
			dir.write(dir.k, key)
			test.prepare(dir)
			_, _, err := buildTLS(t, dir.config("60s")).ClientHandshake(t.Context(), "localhost", nil)
			if want := test.want(dir); err == nil || err.Error() != want {
				t.Errorf("got error %v, want %s", err, want)
			}
		})
	}
}

// gRFC A65: without files "system-wide root certs are used".
func TestTLSWithoutFilesTrustsTheSystem(t *testing.T) {
	t.Parallel()
	err := handshake(t, buildTLS(t, `{}`), "localhost", newCA(t).serverConfig())
	if err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("got error %v, want the server's authority to be unknown", err)
	}
}

func TestTLSChecksTheServerName(t *testing.T) {
	t.Parallel()
	ca, dir := newCA(t), newCertDir(t)
	dir.issue(ca)
	creds := buildTLS(t, dir.config("60s"))
	if err := handshake(t, creds, "example.com", ca.serverConfig()); err == nil {
		t.Error("a certificate for localhost was good enough for example.com")
	}
	if err := handshake(t, creds.Clone(), "localhost", ca.serverConfig()); err != nil {
		t.Errorf("a clone cannot do what the original can: %v", err)
	}
}

func TestTLSIsForClientsInOneMode(t *testing.T) {
	t.Parallel()
	build, err := tlsBuilder{}.ParseConfig(json.RawMessage(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	bundle, _, err := build()
	if err != nil {
		t.Fatal(err)
	}
	if bundle.PerRPCCredentials() != nil {
		t.Error("there are call credentials, want none")
	}
	if _, err := bundle.NewWithMode("balancer"); err == nil {
		t.Error("NewWithMode succeeded")
	}
	if _, _, err := bundle.TransportCredentials().ServerHandshake(nil); err == nil {
		t.Error("ServerHandshake succeeded")
	}
	if err := (&reloadingTLS{}).OverrideServerName("a"); err == nil {
		t.Error("OverrideServerName succeeded")
	}
}

// The whole way: bootstrap, credentials, a real gRPC server that wants a client
// certificate, and the next connection after both sides got new certificates.
func TestTLSOverGRPC(t *testing.T) {
	t.Parallel()
	ca, dir := newCA(t), newCertDir(t)
	dir.issue(ca)
	var current atomic.Pointer[tls.Config]
	current.Store(ca.serverConfig())
	port := serveTLS(t, &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return current.Load(), nil }})
	s := mustParse(t, fmt.Sprintf(`{"xds_servers": [{"server_uri": "dns:///localhost:%d", "channel_creds": [{"type": "tls", "config": %s}]}]}`,
		port, dir.config("0.000000001s"))).Servers[0]
	bundle, release, err := s.Credentials()
	if err != nil {
		t.Fatal(err)
	}
	defer release()

	check := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		defer cancel()
		conn, err := grpc.NewClient(s.URI, grpc.WithCredentialsBundle(bundle))
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
		return err
	}
	if err := check(); err != nil {
		t.Fatalf("the first connection failed: %v", err)
	}
	ca = newCA(t)
	current.Store(ca.serverConfig())
	if err := check(); err == nil {
		t.Fatal("a client with the old certificates reached a server with new ones")
	}
	dir.issue(ca)
	if err := check(); err != nil {
		t.Fatalf("the connection after the rotation failed: %v", err)
	}
}

// serveTLS runs a gRPC server on localhost until the test ends.
func serveTLS(t *testing.T, config *tls.Config) (port int) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(config)))
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
