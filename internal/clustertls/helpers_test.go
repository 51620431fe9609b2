package clustertls

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	tlspb "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/tls/certprovider"
	"google.golang.org/grpc/grpclog"

	"github.com/dynxds/dynxds/internal/boundlog"
	"github.com/dynxds/dynxds/internal/testca"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// systemRoots is the file of the process's system roots. The standard library reads it once,
// at the first use of them, so that all runs of a test have systemCA.
var (
	systemRoots string
	systemCA    *testca.CA
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "roots")
	if err != nil {
		panic(err)
	}
	systemRoots = filepath.Join(dir, "roots.pem")
	os.Setenv("SSL_CERT_FILE", systemRoots)
	os.Setenv("SSL_CERT_DIR", dir)
	boundlog.LiftLimits()
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, logged))
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// logged is the errors that the process has logged.
var logged = new(xdstest.Log)

// provider is a certprovider.Provider of what a test says.
type provider struct {
	xdstest.State
	material func(context.Context) (*certprovider.KeyMaterial, error)
	closed   atomic.Int64
}

func (p *provider) KeyMaterial(ctx context.Context) (*certprovider.KeyMaterial, error) {
	return p.material(ctx)
}

func (p *provider) Close() { p.Change(func() { p.closed.Add(1) }) }

func of(m *certprovider.KeyMaterial) *provider {
	return &provider{material: func(context.Context) (*certprovider.KeyMaterial, error) { return m, nil }}
}

func rootsOf(ca *testca.CA) *provider { return of(&certprovider.KeyMaterial{Roots: ca.Pool()}) }

func identityOf(ca *testca.CA) *provider {
	return of(&certprovider.KeyMaterial{Certs: identityMaterial(ca)})
}

var plugins atomic.Int64

// builtBy is an entry of the bootstrap whose plugin calls build. Its configuration is one that gRPC shares with no other.
func builtBy(plugin string, build func() certprovider.Provider) *bootstrap.CertificateProvider {
	return &bootstrap.CertificateProvider{PluginName: plugin, Buildable: certprovider.NewBuildableConfig(
		"test", fmt.Append(nil, plugins.Add(1)), func(certprovider.BuildOptions) certprovider.Provider { return build() },
	)}
}

// instance registers a plugin that builds a provider, and returns the entry of the bootstrap.
func (p *provider) instance(name string) *bootstrap.CertificateProvider {
	return builtBy("plugin of "+name, func() certprovider.Provider { return p })
}

type instances = map[string]*bootstrap.CertificateProvider

func security(t *testing.T, pb *tlspb.UpstreamTlsContext, in instances) *xdsresource.Security {
	t.Helper()
	c := xdsmsg.EDSCluster("c", "")
	c.TransportSocket = xdsmsg.TLSSocket(pb)
	value, err := xdsresource.ClusterType.Decode(xdsmsg.Any(c), xdsclient.DecodeOptions{Bootstrap: &bootstrap.Config{CertificateProviders: in}})
	xdstest.NoError(t, err)
	return value.(*xdsresource.Cluster).Security
}

// bundle makes a Bundle that lives as long as the test.
func bundle(t *testing.T, pb *tlspb.UpstreamTlsContext, in instances) *Bundle {
	t.Helper()
	b, release := NewPool(true, nil, nil).Acquire("c", &xdsresource.Cluster{Security: security(t, pb, in)})
	t.Cleanup(release)
	return b
}

// plaintext is the config of a server without TLS.
var plaintext = new(tls.Config)

// server accepts TLS connections and keeps each open until its client closes it.
type server struct {
	addr  string
	wg    sync.WaitGroup
	hello chan string // the server names that clients sent
	peers chan []*x509.Certificate
}

func serve(t *testing.T, config *tls.Config) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	xdstest.NoError(t, err)
	s := &server{addr: l.Addr().String(), hello: make(chan string, 100), peers: make(chan []*x509.Certificate, 100)}
	if config != nil && config != plaintext {
		config = config.Clone()
		if config.NextProtos == nil {
			config.NextProtos = []string{"h2"}
		}
		config.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			s.hello <- h.ServerName
			return nil, nil
		}
	}
	s.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.wg.Go(func() { s.serveConn(conn, config) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		s.wg.Wait()
	})
	return s
}

func (s *server) serveConn(conn net.Conn, config *tls.Config) {
	defer conn.Close()
	if config == nil {
		conn.Write([]byte("SSH-2.0: this server does not speak TLS\n"))
		io.Copy(io.Discard, conn)
		return
	}
	if config == plaintext {
		io.Copy(conn, conn)
		return
	}
	secured := tls.Server(conn, config)
	if secured.Handshake() == nil {
		s.peers <- secured.ConnectionState().PeerCertificates
		io.Copy(secured, secured)
	}
}

func (s *server) dial(t *testing.T) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", s.addr)
	xdstest.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// handshake connects, and checks that bytes go there and back.
func (s *server) handshake(t *testing.T, b *Bundle) (credentials.AuthInfo, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	conn, info, err := b.TransportCredentials().ClientHandshake(ctx, "not.the.name:443", s.dial(t))
	if err != nil {
		return nil, err
	}
	echo(t, conn)
	return info, nil
}

func echo(t *testing.T, conn net.Conn) {
	t.Helper()
	got := make([]byte, 1)
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, got); err != nil || got[0] != 'x' {
		t.Fatalf("%q and error %v, want x", got, err)
	}
}

func withNames(ca *testca.CA, names ...string) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{ca.Pair(&x509.Certificate{DNSNames: names})}}
}

// check wants an error of the cluster "c" with all of these parts.
func check(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("the handshake succeeded, want an error with %q", parts)
	}
	for _, part := range append(parts, `TLS of cluster "c": `) {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q, want it to contain %q", err, part)
		}
	}
}
