package interop_test

import (
	"context"
	"crypto/x509"
	"net"
	"net/url"
	"strconv"
	"strings"
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerpb "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	tlspb "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	xdscreds "google.golang.org/grpc/credentials/xds"
	grpcinterop "google.golang.org/grpc/interop"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	grpcpeer "google.golang.org/grpc/peer"
	grpcresolver "google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/xds"

	"github.com/dynxds/dynxds/internal/testca"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/meshtest"
	"github.com/dynxds/dynxds/mesh/meshtest/load"
	"github.com/dynxds/dynxds/resolver"
	"github.com/dynxds/dynxds/testutils"
)

// bothClients resolve targets with the same bootstrap, which they are expected to obey alike.
var bothClients = []struct {
	name    string
	builder func(bootstrap []byte) (grpcresolver.Builder, error)
}{
	{grpcGo, xds.NewXDSResolverWithConfigForTesting},
	{ours, resolver.NewBuilder},
}

// The SPIFFE IDs of the mesh. The server lets "frontend" in.
const (
	backendID  = "spiffe://mesh.example.com/backend"
	frontendID = "spiffe://mesh.example.com/frontend"
	intruderID = "spiffe://mesh.example.com/intruder"
)

// identity is a certificate provider instance: its files, with one authority, and a SPIFFE ID.
type identity struct {
	testca.Files
	id string
}

// issue replaces the roots, the certificate and its key.
func (i identity) issue(t testing.TB, ca *testca.CA) {
	t.Helper()
	id, err := url.Parse(i.id)
	xdstest.NoError(t, err)
	cert, key := ca.Sign(&x509.Certificate{URIs: []*url.URL{id}})
	i.Write(i.CA, ca.PEM())
	i.Write(i.Cert, cert)
	i.Write(i.Key, key)
}

// secureMesh is our control plane with certificate provider instances for both ends.
type secureMesh struct {
	t         testing.TB
	control   *ourServer
	ca        *testca.CA
	instances map[string]identity
}

// newSecureMesh has the instances "backend", "frontend" and "intruder".
func newSecureMesh(t *testing.T) *secureMesh {
	t.Helper()
	m := &secureMesh{
		t: t, ca: testca.New(t), instances: map[string]identity{},
		control: &ourServer{Server: meshtest.StartServer(t)},
	}
	for name, id := range map[string]string{"backend": backendID, "frontend": frontendID, "intruder": intruderID} {
		m.instances[name] = identity{testca.NewFiles(t), id}
		m.instances[name].issue(t, m.ca)
	}
	return m
}

// serverTemplate is the template of the names of servers' Listeners.
const serverTemplate = "grpc/server?xds.resource.listening_address=%s"

// bootstrap is for the server and for all clients.
func (m *secureMesh) bootstrap() []byte {
	providers := map[string]any{}
	for name, i := range m.instances {
		providers[name] = map[string]any{"plugin_name": "file_watcher", "config": map[string]any{
			"ca_certificate_file": i.CA, "certificate_file": i.Cert, "private_key_file": i.Key, "refresh_interval": "0.02s",
		}}
	}
	return m.control.Bootstrap("interop-node", testutils.NodeField("locality", map[string]any{}),
		testutils.TopLevel("certificate_providers", providers),
		testutils.TopLevel("server_listener_resource_name_template", serverTemplate))
}

// client is a channel to a service of the mesh that obeys its Cluster.
func (m *secureMesh) client(t testing.TB, builder func([]byte) (grpcresolver.Builder, error), service string) *grpc.ClientConn {
	t.Helper()
	b, err := builder(m.bootstrap())
	xdstest.NoError(t, err)
	creds, err := xdscreds.NewClientCredentials(xdscreds.ClientOptions{FallbackCreds: insecure.NewCredentials()})
	xdstest.NoError(t, err)
	return dial(t, b, "xds:///"+service, grpc.WithTransportCredentials(creds))
}

// serve starts a gRPC-Go xDS server with a Listener that has a context for TLS; nil: none. It
// returns the server's address once it serves.
//
// The responses have the SPIFFE ID of the client as the server knows it, in place of the
// backend's ID.
func (m *secureMesh) serve(t testing.TB, inbound *tlspb.DownstreamTlsContext) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	xdstest.NoError(t, err)
	m.control.Set(t, serverListener(l.Addr().(*net.TCPAddr), inbound))
	modes := startXDSServer(t, m.bootstrap(), l, grpcinterop.NewTestServer(),
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			if err := grpc.SetHeader(ctx, caller(ctx)); err != nil {
				return nil, err
			}
			return handler(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			if err := stream.SetHeader(caller(stream.Context())); err != nil {
				return err
			}
			return handler(srv, stream)
		}))
	ctx := testutils.Context(t)
	for {
		select {
		case args := <-modes:
			if args.Mode == connectivity.ServingModeServing {
				return l.Addr().String()
			}
			t.Logf("the server does not serve: %v", args.Err)
		case <-ctx.Done():
			t.Fatal("the server does not serve")
		}
	}
}

// noIdentity stands for a client without a verified SPIFFE ID.
const noIdentity = "unknown"

// caller is the header with the identity of who made the RPC.
func caller(ctx context.Context) metadata.MD {
	id := noIdentity
	if p, ok := grpcpeer.FromContext(ctx); ok {
		id = spiffeID(p)
	}
	return metadata.Pairs(testutils.BackendIDHeader, id)
}

// spiffeID is the URI in the verified certificate of the other end of a connection.
func spiffeID(p *grpcpeer.Peer) string {
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 || len(info.State.PeerCertificates[0].URIs) == 0 {
		return noIdentity
	}
	return info.State.PeerCertificates[0].URIs[0].String()
}

// serverListener is the Listener of a server. It denies RPCs of the intruder alone.
func serverListener(addr *net.TCPAddr, context *tlspb.DownstreamTlsContext) *listenerpb.Listener {
	l := xdsmsg.With(new(listenerpb.Listener), `
		name: %q
		filter_chains { name: "inbound" filters { name: "hcm" typed_config {
			[type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager] {
				route_config { name: "inbound" virtual_hosts {
					name: "*" domains: "*" routes { match { prefix: "/" } non_forwarding_action {} }
				} }
				http_filters { name: "rbac" typed_config { [type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC] {
					rules { action: DENY policies { key: "intruder" value {
						permissions { any: true } principals { authenticated { principal_name { exact: %q } } }
					} } }
				} } }
				http_filters { name: "router" typed_config { [type.googleapis.com/envoy.extensions.filters.http.router.v3.Router] {} } }
			}
		} } }`,
		strings.Replace(serverTemplate, "%s", net.JoinHostPort(addr.IP.String(), strconv.Itoa(addr.Port)), 1), intruderID)
	l.Address = xdsmsg.Address(addr.String())
	if context != nil {
		l.FilterChains[0].TransportSocket = xdsmsg.TLSSocket(context)
	}
	return l
}

// mutualTLS is the context of a server that requires certificates of clients.
func mutualTLS(instance string) *tlspb.DownstreamTlsContext {
	c := xdsmsg.With(new(tlspb.DownstreamTlsContext), "require_client_certificate { value: true }")
	c.CommonTlsContext = xdsmsg.UpstreamTLS(instance, instance).GetCommonTlsContext()
	return c
}

// publish makes a service of the mesh: Listener, routes, Cluster and endpoints.
func (m *secureMesh) publish(t *testing.T, service, addr string, context *tlspb.UpstreamTlsContext) {
	t.Helper()
	m.control.Set(t, xdsmsg.DefaultListener(service, service), xdsmsg.RouteConfig(service, service, xdsmsg.PrefixRoute("/", service)),
		secured(cluster(service, service), context), xdsmsg.SimpleEndpoints("endpoints-of-"+service, addr))
}

func secured(c *clusterpb.Cluster, context *tlspb.UpstreamTlsContext) *clusterpb.Cluster {
	c.TransportSocket = xdsmsg.TLSSocket(context)
	return c
}

// A gRPC-Go xDS server that requires certificates of clients accepts dynxds and gRPC-Go's client by the same control
// plane, verifies their identities as they do its own, and rejects them for the same reasons.
func TestMutualTLSWithAnXDSServer(t *testing.T) {
	t.Parallel()
	m := newSecureMesh(t)
	addr := m.serve(t, mutualTLS("backend"))
	open := m.serve(t, nil)
	byPrefix := xdsmsg.With(xdsmsg.UpstreamTLS("frontend", "frontend"), `common_tls_context { validation_context {
		match_subject_alt_names { prefix: "spiffe://mesh.example.com/" } } }`)
	for _, tc := range []struct {
		name    string
		context *tlspb.UpstreamTlsContext
		addr    string
		code    codes.Code
	}{
		{name: "mTLS", context: xdsmsg.UpstreamTLS("frontend", "frontend", backendID), addr: addr},
		{name: "mTLS to a prefix", context: byPrefix, addr: addr},
		{name: "a wrong SAN", context: xdsmsg.UpstreamTLS("frontend", "frontend", "spiffe://mesh.example.com/other"), addr: addr, code: codes.Unavailable},
		{name: "no certificate", context: xdsmsg.UpstreamTLS("", "frontend", backendID), addr: addr, code: codes.Unavailable},
		{name: "a client that the server's RBAC denies", context: xdsmsg.UpstreamTLS("intruder", "intruder", backendID), addr: addr, code: codes.PermissionDenied},
		{name: "a server in plaintext", context: xdsmsg.UpstreamTLS("frontend", "frontend", backendID), addr: open, code: codes.Unavailable},
	} {
		service := strings.ReplaceAll(tc.name, " ", "-") + ".example.com"
		m.publish(t, service, tc.addr, tc.context)
		for _, c := range bothClients {
			t.Run(tc.name+"/"+c.name, func(t *testing.T) {
				client := testpb.NewTestServiceClient(m.client(t, c.builder, service))
				for _, kind := range load.Kinds {
					var server grpcpeer.Peer
					header, err := kind.Do(testutils.Context(t), client, grpc.Peer(&server))
					if status.Code(err) != tc.code {
						t.Fatalf("%s: error %v, want %v", kind.Name, err, tc.code)
					}
					if err == nil {
						xdstest.Equal(t, "the client, as the server sees it", []string{frontendID}, header.Get(testutils.BackendIDHeader))
						xdstest.Equal(t, "the server, as the client sees it", backendID, spiffeID(&server))
					}
				}
			})
		}
	}
	m.control.checkAccepted(t)
}
