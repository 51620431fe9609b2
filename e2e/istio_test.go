package e2e_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/priority/previous_priorities/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/testca"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
	"github.com/dynxds/dynxds/testutils"
)

// istioResource is a resource as Istio writes it, with other text in place of some: pairs of old and new.
func istioResource(t *testing.T, file, name string, replace ...string) proto.Message {
	t.Helper()
	text := golden.Read(t, filepath.Join("../internal/xdsresource/testdata/controlplanes", file))
	var cases []struct {
		Name     string
		Resource json.RawMessage
	}
	xdstest.NoError(t, json.Unmarshal([]byte(text), &cases))
	for _, c := range cases {
		if c.Name != name {
			continue
		}
		a := new(anypb.Any)
		xdstest.NoError(t, protojson.Unmarshal([]byte(strings.NewReplacer(replace...).Replace(string(c.Resource))), a))
		m, err := a.UnmarshalNew()
		xdstest.NoError(t, err)
		return m
	}
	t.Fatalf("%s has no %q", file, name)
	return nil
}

// putIstioCerts writes the files of a workload's certificate.
func putIstioCerts(t *testing.T, dir string, ca *testca.CA) {
	t.Helper()
	cert, key := ca.Leaf()
	for name, data := range map[string][]byte{"root-cert.pem": ca.PEM(), "cert-chain.pem": cert, "key.pem": key} {
		put(t, filepath.Join(dir, name), data)
	}
}

// istioEndpoints are Istio's endpoints for a cluster. The first is a backend; the others are draining or less
// preferred.
func istioEndpoints(t *testing.T, cluster string, b *testutils.Backend) *endpointpb.ClusterLoadAssignment {
	t.Helper()
	e := istioResource(t, "istio-grpc.json", "endpoints").(*endpointpb.ClusterLoadAssignment)
	e.ClusterName = cluster
	e.Endpoints[0].LbEndpoints[0].GetEndpoint().Address = xdsmsg.Address(b.Addr())
	return e
}

// With what Istio sends for a service with a VirtualService, subsets and mTLS, and the bootstrap and certificates of
// its agent, RPCs are routed, split, mirrored and secured as configured, and nothing is NACKed.
func TestIstioConfiguration(t *testing.T) {
	t.Parallel()
	const echo, plain = "echo.default.svc.cluster.local", "plain.default.svc.cluster.local"
	m, ca, dir := newMesh(t), testca.New(t), t.TempDir()
	putIstioCerts(t, dir, ca)
	bootstrap := istioBootstrap(t, m.Addr(), dir)
	for _, f := range m.features { // The agent has SotW only.
		bootstrap = strings.Replace(bootstrap, `"xds_v3"`, `"xds_v3", "`+f+`"`, 1)
	}
	const grpcFile, canary = "istio-grpc.json", "the cluster of a subset with ISTIO_MUTUAL"
	identity := forID(t, "spiffe://cluster.local/ns/default/sa/default")
	subset := func(s string) string { return "outbound|7070|" + s + "|" + echo }
	v1, v2 := secureBackend(t, "v1", ca, true, identity), secureBackend(t, "v2", ca, true, identity)
	inPlain := testutils.StartBackend(t, "plain")
	m.set(
		istioResource(t, grpcFile, "a Listener"), istioResource(t, grpcFile, "routes of a VirtualService"),
		istioResource(t, grpcFile, canary), istioEndpoints(t, subset("v1"), v1),
		istioResource(t, grpcFile, canary, "|v1|", "|v2|"), istioEndpoints(t, subset("v2"), v2),

		istioResource(t, grpcFile, "a Listener", echo, plain), istioResource(t, grpcFile, "routes of a service without a VirtualService", echo, plain),
		istioResource(t, grpcFile, "a cluster", echo, plain), istioEndpoints(t, "outbound|7070||"+plain, inPlain),

		xdsmsg.DefaultListener("nowhere:7070", "nowhere"), xdsmsg.RouteConfig("nowhere", "*", toCluster("BlackHoleCluster")),
		istioResource(t, "istio-sidecar.json", "BlackHoleCluster"),
	)
	open := func(target string) *grpc.ClientConn { return dialWith(t, target, []byte(bootstrap), xdsCreds(t)) }

	cc, ctx := open("xds:///"+echo+":7070"), testutils.Context(t)
	tester := metadata.AppendToOutgoingContext(ctx, "x-user", "tester")
	// RPCs are mirrored to v2, which gets more than it answers.
	for reached := map[string]int{}; reached["v1"] == 0 || reached["v2"] == 0 || v2.Count() <= reached["v2"]; {
		id, err := call(tester, cc, unary, grpc.WaitForReady(true))
		reached[id]++
		// The VirtualService has one RPC in ten fail.
		if err != nil && !strings.Contains(err.Error(), "fault") || ctx.Err() != nil {
			t.Fatalf("reached %v: %v", reached, err)
		}
	}
	if got := v1.Last().Metadata; len(got["x-canary"]) != 1 || len(got["x-v"]) != 1 {
		t.Errorf("v1 got %v, want the headers that the route and the subset add", got)
	}
	if _, err := call(ctx, cc, unary, grpc.WaitForReady(true)); status.Code(err) != codes.Unimplemented {
		t.Errorf("without the header: %v, want the route's own answer, 404", err)
	}

	cc = open("xds:///" + plain + ":7070")
	eachKind(t, func(t *testing.T, k kind) { mustReach(t, cc, k, inPlain) })
	inPlain.Fail(testutils.TrailersOnly(status.Error(codes.Unavailable, "down")))
	before := inPlain.Count()
	if _, err := call(ctx, cc, unary); status.Code(err) != codes.Unavailable || inPlain.Count() != before+3 {
		t.Errorf("%v after %d attempts, want three by Istio's own retry policy", err, inPlain.Count()-before)
	}

	mustFail(t, open("xds:///nowhere:7070"), "BlackHoleCluster")
	for _, r := range m.Requests() {
		if r.Err != nil {
			t.Errorf("a NACK: %v", r)
		}
	}
}

// istioBootstrap is a bootstrap as Istio's agent (pkg/istio-agent/grpcxds) writes it, but for white space: what
// encoding/json makes of its structs, with a Node of Envoy's API in it. The placeholders are the server_uri
// and the directory of the workload's certificates.
func istioBootstrap(t *testing.T, uri, dir string) string {
	t.Helper()
	return fmt.Sprintf(golden.Read(t, "testdata/istio-bootstrap.txt"), uri, dir)
}

// With the bootstrap file that Istio's agent writes, services are reached through the agent's unix socket. The server
// may rewrite the authority if the environment says that it is trusted, as the agent does not write that.
func TestIstioBootstrap(t *testing.T) {
	directly(t, "the node upstream has the id of the relay")
	const istioService = "echo.default.svc.cluster.local:7070"
	dir, err := os.MkdirTemp("", "istio") // t.TempDir is too long for a socket
	xdstest.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "XDS")
	listener, err := net.Listen("unix", socket)
	xdstest.NoError(t, err)
	m, backend := newMesh(t), testutils.StartBackend(t, "b")
	xdstest.ForwardFrom(t, listener, m.Addr())
	m.serveRewritten(istioService, `cluster: "b" auto_host_rewrite { value: true }`, backend)

	for _, test := range []struct {
		name      string
		uri       string // Istio writes "unix:///etc/istio/proxy/XDS"; before 1.10 it was relative
		trusted   string
		authority string
	}{
		{"absolute path", "unix://" + socket, "", istioService},
		{"relative path", "unix:///." + socket, "", istioService},
		{"trusted", "unix://" + socket, "istiod.istio-system.svc:15010, unix://" + socket, "rewritten"},
		{"another server trusted", "unix://" + socket, "unix:///." + socket, istioService},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "grpc-bootstrap.json")
			put(t, file, []byte(istioBootstrap(t, test.uri, dir)))
			t.Setenv("GRPC_XDS_BOOTSTRAP", file)
			t.Setenv("DYNXDS_TRUSTED_XDS_SERVERS", test.trusted)
			cc := dial(t, "xds:///"+istioService)
			eachKind(t, func(t *testing.T, k kind) {
				mustReach(t, cc, k, backend)
				xdstest.Equal(t, "authority", test.authority, backend.Last().Authority)
			})
		})
	}
}
