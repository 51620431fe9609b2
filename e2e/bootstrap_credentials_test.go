package e2e_test

import (
	"encoding/base64"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/testca"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// Given an authority whose server has only channel credentials that the program does not
// know, then RPCs to its names fail and say why, and all others succeed. An authority with
// another server falls back to it.
func TestUnknownCredentialsOfAnAuthority(t *testing.T) {
	directly(t, "several management servers, and the relay is one")
	t.Parallel()
	m, c2p := newMesh(t), newMesh(t)
	backend := testutils.StartBackend(t, "b")
	m.serve(service, "cluster", backend)
	cluster := in("fallback", xdsmsg.ClusterType, "c")
	c2p.set(
		xdsmsg.InlineListener(in("fallback", xdsmsg.ListenerType, service), xdsmsg.RouteConfig("", service, xdsmsg.PrefixRoute("", cluster))),
		xdsmsg.EDSCluster(cluster, in("fallback", xdsmsg.EndpointType, "e")),
		xdsmsg.SimpleEndpoints(in("fallback", xdsmsg.EndpointType, "e"), backend.Addr()),
	)
	server := func(types string) map[string]any {
		return map[string]any{"server_uri": c2p.Addr(), "channel_creds": []map[string]any{{"type": types}}}
	}
	bootstrap := m.bootstrap(
		testutils.Authority("c2p", "", map[string]any{"xds_servers": []any{server("google_default")}}),
		testutils.Authority("fallback", "", map[string]any{"xds_servers": []any{server("google_default"), server("insecure")}}))

	mustReach(t, dialWith(t, "xds:///"+service, bootstrap), unary, backend)
	mustReach(t, dialWith(t, "xds://fallback/"+service, bootstrap), unary, backend)
	mustFail(t, dialWith(t, "xds://c2p/"+service, bootstrap),
		in("c2p", xdsmsg.ListenerType, service), c2p.Addr(),
		`authorities["c2p"].xds_servers[0].channel_creds: expected a type that this program supports`,
		`import _ "github.com/dynxds/dynxds/xdsclient/bootstrap/googledefault"`)
	mustReach(t, dialWith(t, "xds:///"+service, bootstrap), unary, backend)
}

// Given a control plane with mutual TLS that wants a token of each stream (gRFCs A65, A97),
// then RPCs fail and name the token's file while it is missing, and succeed once it is
// there.
func TestControlPlaneThatWantsTokens(t *testing.T) {
	t.Parallel()
	ca, files := testca.New(t), testca.NewFiles(t)
	files.Issue(ca)
	part := base64.RawURLEncoding.EncodeToString
	token := part([]byte(`{"alg":"none"}`)) + "." + part(fmt.Appendf(nil, `{"exp":%d}`, time.Now().Add(time.Hour).Unix())) + ".signature"
	authorized := func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		md, _ := metadata.FromIncomingContext(stream.Context())
		if got := strings.Join(md.Get("authorization"), ","); got != "Bearer "+token {
			return status.Errorf(codes.Unauthenticated, "authorization %q", got)
		}
		return handler(srv, stream)
	}
	m := &mesh{t: t, Server: xdstest.StartServer(t, append(linkOf(t),
		testutils.GRPCOptions(grpc.Creds(credentials.NewTLS(ca.ServerConfig())), grpc.ChainStreamInterceptor(authorized)))...)}
	if protocol != "" {
		m.features = []string{protocol}
	}
	backend := testutils.StartBackend(t, "b")
	m.serve(service, "cluster", backend)
	_, port, err := net.SplitHostPort(m.Addr())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "token")
	cc := dialWith(t, "xds:///"+service, m.bootstrap(testutils.TopLevel("xds_servers", []any{map[string]any{
		"server_uri": "dns:///localhost:" + port, "server_features": m.features,
		"channel_creds": []any{map[string]any{"type": "tls", "config": map[string]any{
			"ca_certificate_file": files.CA, "certificate_file": files.Cert, "private_key_file": files.Key}}},
		"call_creds": []any{map[string]any{"type": "jwt_token_file", "config": map[string]any{"jwt_token_file": path}}},
	}})))
	mustFail(t, cc, "Unavailable", path)
	put(t, path, []byte(token))
	mustReach(t, cc, unary, backend)
}
