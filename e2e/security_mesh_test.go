package e2e_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/url"
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	tlspb "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/testca"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// secureMesh is a mesh whose clients have certificate providers: "default", which has the
// files' certificate and the CA, and those that a test adds.
type secureMesh struct {
	*mesh
	ca        *testca.CA
	files     testca.Files
	providers map[string]any
}

func newSecureMesh(t *testing.T) *secureMesh {
	t.Helper()
	m := &secureMesh{mesh: newMesh(t), ca: testca.New(t), files: testca.NewFiles(t)}
	m.files.Issue(m.ca)
	m.providers = map[string]any{"default": watcher(map[string]string{
		"ca_certificate_file": m.files.CA, "certificate_file": m.files.Cert, "private_key_file": m.files.Key,
		"refresh_interval": "0.001s",
	})}
	return m
}

func watcher(config map[string]string) map[string]any {
	return map[string]any{"plugin_name": "file_watcher", "config": config}
}

// dial opens a channel that leaves security to the Clusters.
func (m *secureMesh) dial(opts ...grpc.DialOption) *grpc.ClientConn {
	m.t.Helper()
	return dialWith(m.t, "xds:///"+service, m.bootstrap(testutils.TopLevel("certificate_providers", m.providers)),
		append([]grpc.DialOption{xdsCreds(m.t)}, opts...)...)
}

// asking is the resources of a cluster with backends, and with a context for TLS; nil: none.
func asking(name string, context *tlspb.UpstreamTlsContext, backends ...*testutils.Backend) []proto.Message {
	return withTLS(clusterOf(name, backends...), context)
}

// withTLS gives every Cluster among the resources that has endpoints a context; nil: none.
func withTLS(resources []proto.Message, context *tlspb.UpstreamTlsContext) []proto.Message {
	for _, r := range resources {
		if c, ok := r.(*clusterpb.Cluster); ok && !isAggregate(c) && context != nil {
			c.TransportSocket = xdsmsg.TLSSocket(context)
		}
	}
	return resources
}

// secureBackend starts a backend with serverTLS.
func secureBackend(t *testing.T, id string, ca *testca.CA, mutual bool, template *x509.Certificate, opts ...grpc.ServerOption) *testutils.Backend {
	t.Helper()
	return testutils.StartBackend(t, id, append(opts, grpc.Creds(credentials.NewTLS(serverTLS(ca, mutual, template))))...)
}

// serverTLS is TLS with a certificate of the CA for the names and URIs of the template. If mutual, clients need a
// certificate.
func serverTLS(ca *testca.CA, mutual bool, template *x509.Certificate) *tls.Config {
	config := &tls.Config{Certificates: []tls.Certificate{ca.Pair(template)}}
	if mutual {
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, ca.Pool()
	}
	return config
}

func forNames(names ...string) *x509.Certificate { return &x509.Certificate{DNSNames: names} }

func forID(t *testing.T, id string) *x509.Certificate {
	t.Helper()
	u, err := url.Parse(id)
	xdstest.NoError(t, err)
	return &x509.Certificate{URIs: []*url.URL{u}}
}

// bundleMap is a SPIFFE trust bundle map with the CA as the root of one trust domain.
func bundleMap(t *testing.T, domain string, ca *testca.CA) []byte {
	t.Helper()
	bundle := spiffebundle.FromX509Authorities(spiffeid.RequireTrustDomainFromString(domain), []*x509.Certificate{ca.Cert()})
	keys, err := bundle.Marshal()
	xdstest.NoError(t, err)
	text, err := json.Marshal(map[string]any{"trust_domains": map[string]json.RawMessage{domain: keys}})
	xdstest.NoError(t, err)
	return text
}
