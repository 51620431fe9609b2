package e2e_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/testca"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/meshtest"
	"github.com/dynxds/dynxds/testutils"
)

// severalServers is why a test does not run with a relay.
const severalServers = "the test has several management servers, and the relay is one"

// pair is a preferred control plane and one to fall back to (gRFC A71), and the backends
// that they send RPCs to.
type pair struct {
	high, low         *mesh
	fromHigh, fromLow *testutils.Backend
}

// newPair starts a pair, each with a cluster of the given name.
func newPair(t testing.TB, high, low string) pair {
	p := pair{newMesh(t), newMesh(t), testutils.StartBackend(t, "high"), testutils.StartBackend(t, "low")}
	p.high.serve(service, high, p.fromHigh)
	p.low.serve(service, low, p.fromLow)
	return p
}

// dial opens a channel to the target with both control planes.
func (p pair) dial(target string) *grpc.ClientConn {
	t := p.high.t
	t.Helper()
	return dialWith(t, target, p.high.bootstrap(testutils.FurtherServer(p.low.Addr(), p.low.features...)))
}

// gRFC A71: with the primary down at the start, RPCs use the secondary's resources; when it
// is up they use the primary's, and none fails.
func TestRPCsFallBackAndReturn(t *testing.T) {
	everyWay(t)
	directly(t, severalServers)
	overLinks(t, func(t *testing.T) {
		p := newPair(t, "cluster-high", "cluster-low")
		p.high.Stop()
		cc := p.dial("xds:///" + service)
		load := loadOn(t, cc, p.fromLow)
		p.high.restart()
		load.await(t, p.fromHigh)
		load.Stop(t)
		if err := p.low.WaitOpen(testutils.Context(t), 0); err != nil {
			t.Errorf("the secondary is still in use: %v", err)
		}
	})
}

// gRFC A71: "mid-config update, such as when the control plane sends an updated
// RDS resource that points to a new cluster, but then the control plane becomes
// unavailable before the new CDS resources can be obtained".
func TestPrimaryLostInTheMiddleOfAnUpdate(t *testing.T) {
	everyWay(t)
	directly(t, severalServers)
	overLinks(t, func(t *testing.T) {
		p := newPair(t, "cluster", "cluster-low")
		cc := p.dial("xds:///" + service)
		load := loadOn(t, cc, p.fromHigh)
		// The new route names a cluster; when the client subscribes to it, the primary
		// stops.
		p.high.OnRequest(func(r xdstest.Request) error {
			if xdstest.Subscribing(xdsmsg.ClusterType, "new")(r) {
				p.high.RefuseStreams(errors.New("stopped"))
				return errors.New("stopped")
			}
			return nil
		})
		p.high.set(xdsmsg.RouteConfig(service, service, toCluster("new")))
		load.await(t, p.fromLow)
		// Back with all of it, it is preferred again.
		p.high.OnRequest(nil)
		p.high.set(clusterOf("new", p.fromHigh))
		p.high.RefuseStreams(nil)
		load.await(t, p.fromHigh)
		load.Stop(t)
	})
}

// gRFC A71: fallback is per target. While the primary is down, a channel that has all its
// resources keeps the primary's configuration, and one that is dialled then in the same
// process uses the secondary's, even though both have a cluster of the same name. When the
// primary is back, both use it. No RPC fails.
func TestOneTargetFallsBackAndTheOtherStays(t *testing.T) {
	everyWay(t)
	directly(t, severalServers)
	overLinks(t, func(t *testing.T) {
		const other = "other.service"
		p := newPair(t, "shared", "shared")
		p.high.serve(other, "shared", p.fromHigh)
		p.low.serve(other, "shared", p.fromLow)
		stays := p.dial("xds:///" + service)
		load := loadOn(t, stays, p.fromHigh)

		p.high.cutOff(2)
		falls := p.dial("xds:///" + other)
		loadOfOther := loadOn(t, falls, p.fromLow)
		// The secondary's version of the shared cluster is not for the channel that stays.
		again := testutils.StartBackend(t, "low again")
		p.low.set(clusterOf("shared", again))
		loadOfOther.await(t, again)
		load.await(t, p.fromHigh)
		xdstest.Equal(t, "streams that were opened at the secondary", 1, p.low.Attempts())

		p.high.RefuseStreams(nil)
		loadOfOther.await(t, p.fromHigh)
		loadOfOther.Stop(t)
		load.Stop(t)
		if err := p.low.WaitOpen(testutils.Context(t), 0); err != nil {
			t.Errorf("the secondary is still in use: %v", err)
		}
	})
}

// gRFC A47: a target with an authority is configured from the authority's servers,
// by names that lead from authority to authority.
func TestFederation(t *testing.T) {
	everyWay(t)
	directly(t, severalServers)
	t.Parallel()
	main, own := newMesh(t), newMesh(t)
	forMain, forOwn := testutils.StartBackend(t, "main"), testutils.StartBackend(t, "own")
	bootstrap := main.bootstrap(
		testutils.Authority("own.example.com", own.Addr(), nil),
		testutils.Authority("shared", "", nil),
		testutils.Authority("", "", nil))

	// The path, from authority to authority: the Listener and its routes, whose
	// name is written in two ways, are "own"; one cluster is, and its endpoints
	// are of a third authority with the servers of the old-style names.
	const other = "xdstp:///envoy.config.cluster.v3.Cluster/other"
	cluster := in("own.example.com", xdsmsg.ClusterType, "c/1")
	endpoints := in("shared", xdsmsg.EndpointType, "e")
	own.set(
		xdsmsg.DefaultListener(in("own.example.com", xdsmsg.ListenerType, service), in("own.example.com", xdsmsg.RouteType, "%72?b=/&a=1")),
		xdsmsg.RouteConfig(in("own.example.com", xdsmsg.RouteType, "r?a=1&b=/"), service, xdsmsg.PathRoute(emptyMethod, other), toCluster(cluster)),
		xdsmsg.EDSCluster(cluster, endpoints),
	)
	main.set(
		endpointsOf(endpoints, forOwn),
		xdsmsg.EDSCluster(other, "old-style endpoints"),
		endpointsOf("old-style endpoints", forMain),
	)
	main.serve(service, "cluster", forMain)

	federated := dialWith(t, "xds://own.example.com/"+service, bootstrap)
	mustReachByEachKind(t, federated, forOwn)
	mustReach(t, dialWith(t, "xds:///"+service, bootstrap), unary, forMain)
	if err := federated.Invoke(testutils.Context(t), emptyMethod, empty, new(testgrpc.Empty)); err != nil {
		t.Errorf("the RPC to the cluster without an authority: %v", err)
	}
	// One process, one bootstrap: a stream per server.
	if main.Attempts() != 1 || own.Attempts() != 1 {
		t.Errorf("%d and %d streams were opened, want one per server", main.Attempts(), own.Attempts())
	}
}

// asServer is the mesh in xds_servers of a bootstrap.
func (m *mesh) asServer(creds string) map[string]any {
	return map[string]any{
		"server_uri": m.Addr(), "channel_creds": []any{map[string]any{"type": creds}}, "server_features": m.features,
	}
}

// authorityWith is an authority with these servers.
func authorityWith(name string, servers ...map[string]any) testutils.BootstrapOption {
	return testutils.Authority(name, "", map[string]any{"xds_servers": servers})
}

// With a control plane that requires mutual TLS and a token on each stream (gRFCs A65, A97), RPCs fail and name the
// token's file while it is missing, and succeed once it exists.
func TestControlPlaneThatRequiresTokens(t *testing.T) {
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
	m := &mesh{t: t, features: withFeature(nil, protocol), Server: meshtest.Start(t, meshtest.Options{
		GRPC: []grpc.ServerOption{grpc.Creds(credentials.NewTLS(ca.ServerConfig())), grpc.ChainStreamInterceptor(authorized)},
	})}
	backend := testutils.StartBackend(t, "b")
	m.serve(service, "cluster", backend)
	_, port, err := net.SplitHostPort(m.Addr())
	xdstest.NoError(t, err)
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
