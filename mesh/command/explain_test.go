package command

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"

	statuspb "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/explain"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/meshtest"
	"github.com/dynxds/dynxds/observe/csds"
	"github.com/dynxds/dynxds/testutils"
)

func TestExplainFolder(t *testing.T) {
	t.Parallel()
	out := runOK(t, "explain", exampleMesh, "--client", "service=frontend,version=v2", "--service", "backend", "/pkg.Service/Method", "-H", "x-user: 7")
	for _, want := range []string{"/pkg.Service/Method to xds:///backend", "outcome", "owner.yaml:", "services.yaml:", "priority 0   would be in use"} {
		if !strings.Contains(out, want) {
			t.Errorf("the output does not have %q:\n%s", want, out)
		}
	}
	out = runOK(t, "explain", "-o", "json", exampleMesh, "xds:///backend", "/pkg.Service/Method", "--kind", "grpc-go", "-H", "X-User: 7")
	var e explain.Explanation
	xdstest.NoError(t, json.Unmarshal([]byte(out), &e))
	if e.Client.Name != "gRPC Go" || e.Request.Headers["x-user"][0] != "7" || len(e.Clusters) == 0 {
		t.Errorf("the explanation is %+v", e)
	}
}

// A folder is what a client would have. Each route has its place, also those that are not taken, and weights of 0 are shown.
func TestExplainFolderSaysWhatWouldBe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmdtest.Write(t, dir, "services.yaml", `kind: Service
name: backend
endpoints:
- {address: 10.0.0.1:80, tags: {version: v1}}
- {address: 10.0.0.2:80, tags: {version: v1}, health: Draining}
- {address: 10.0.0.3:80, tags: {version: v2}}
`)
	cmdtest.Write(t, dir, "routes.yaml", `kind: MeshHTTPRoute
name: canary
spec:
  to:
  - targetRef: {kind: MeshService, name: backend}
    rules:
    - matches: [{path: {type: Exact, value: /pkg.Service/Method}, headers: [{name: x-user, value: "7"}]}]
      backendRefs: [{kind: MeshServiceSubset, name: backend, tags: {version: v2}}]
    - matches: [{path: {type: Prefix, value: /}}]
      backendRefs:
      - {kind: MeshServiceSubset, name: backend, tags: {version: v1}, weight: 1}
      - {kind: MeshServiceSubset, name: backend, tags: {version: v2}, weight: 0}
`)
	out := runOK(t, "explain", dir, "--service", "backend", "/pkg.Service/Method")
	for _, want := range []string{
		"outcome      route 1 → cluster \"backend;version=v1\", priority 0, 1 endpoint\n",
		"no: header x-user is absent  [routes.yaml:7]\n", "taken by 100% of the RPCs  [routes.yaml:9]\n",
		"    cluster      \"backend;version=v1\"  100%  [routes.yaml:11]\n    cluster      \"backend;version=v2\"  0%  [routes.yaml:11]\n",
		"Listener \"backend\"\n    would be sent, version ", "would be in use: the first with an endpoint that would be HEALTHY or UNKNOWN: 1 of 2\n",
		"10.0.0.1:80  would be HEALTHY   weight 1    [services.yaml:4]\n", "10.0.0.2:80  would be DRAINING  weight 1    [services.yaml:5]\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the output does not have %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "ACKED") || strings.Contains(out, "\ncluster \"backend;version=v2\"") {
		t.Errorf("the output says ACKED, or describes a cluster that gets no RPC:\n%s", out)
	}
}

// A process with a channel of dynxds, asked over the network.
func TestExplainProcess(t *testing.T) {
	t.Parallel()
	// What is counted of RPCs outlives a channel, so that each run of the test has a target of its own.
	service := fmt.Sprintf("explained-by-command-%d.example.com", time.Now().UnixNano())
	control, backend := meshtest.StartServer(t), testutils.StartBackend(t, "b")
	control.Set(t, xdsmsg.DefaultListener(service, service), xdsmsg.RouteConfig(service, "*", xdsmsg.PrefixRoute("/", "c")),
		xdsmsg.EDSCluster("c", ""), xdsmsg.SimpleEndpoints("c", backend.Addr()))
	cc := cmdtest.DialXDS(t, "xds:///"+service, control.Bootstrap(t.Name()))
	_, err := testgrpc.NewTestServiceClient(cc).EmptyCall(testutils.Context(t), new(testgrpc.Empty))
	xdstest.NoError(t, err)
	process := cmdtest.Serve(t, func(s *grpc.Server) { xdstest.NoError(t, csds.Register(s)) })

	out, stderr, code := run(t, "explain", process, "xds:///"+service, "/grpc.testing.TestService/EmptyCall")
	if want := `route 0 → cluster "c", priority 0, 1 of 1 endpoint connected`; code != 0 || !strings.Contains(out, want) || !strings.Contains(out, backend.Addr()) {
		t.Errorf("status %d, %s; want %q:\n%s", code, stderr, want, out)
	}
	_, stderr, code = run(t, "explain", process, "xds:///nobody", "/grpc.testing.TestService/EmptyCall")
	if code == 0 || !strings.Contains(stderr, `has no Listener "nobody"; it has `+service) {
		t.Errorf("status %d, %s; want the Listeners that there are", code, stderr)
	}
	// Clients of other tests in this process may fail.
	out, stderr, _ = run(t, "status", process, "--name", "c")
	if want := "\n  cluster c: healthy, 1 of 1 endpoint connected"; !strings.Contains(out, "xds:///"+service+"\n  Healthy: ") || !strings.Contains(out, want) {
		t.Errorf("%s; want %q:\n%s", stderr, want, out)
	}

	// A backend that is gone is neither "healthy" nor "connected", however healthy the control plane calls it.
	backend.Stop()
	cmdtest.Await(t, func() string {
		_, _ = testgrpc.NewTestServiceClient(cc).EmptyCall(testutils.Context(t), new(testgrpc.Empty))
		out, stderr, code := run(t, "status", process, "--name", "c")
		if code == 1 && stderr == "" && strings.Contains(out, "\n  cluster c: failing, 0 of 1 endpoint connected") && strings.Contains(out, "Failing: ") {
			return ""
		}
		return out + stderr
	})
	out = runOK(t, "explain", process, "xds:///"+service, "/grpc.testing.TestService/EmptyCall")
	if !strings.Contains(out, `cluster "c", where they fail with UNAVAILABLE: `) || !strings.Contains(out, backend.Addr()+"  HEALTHY  weight 1  TRANSIENT_FAILURE") {
		t.Errorf("the endpoint is not connected:\n%s", out)
	}
}

// Neither JSON nor an error gives a process that is asked control of the terminal.
func TestExplainGivesNoControlOfTheTerminal(t *testing.T) {
	t.Parallel()
	const evil = "\x1b[2J\x7f\u009b\u202e\U000e0001"
	a := xdsmsg.Any(xdsmsg.InlineListener(evil, xdsmsg.RouteConfig("", "*", xdsmsg.PrefixRoute("/", evil))))
	process := cmdtest.Serve(t, func(s *grpc.Server) {
		statuspb.RegisterClientStatusDiscoveryServiceServer(s, canned{answer: &statuspb.ClientStatusResponse{Config: []*statuspb.ClientConfig{
			{GenericXdsConfigs: []*statuspb.ClientConfig_GenericXdsConfig{{TypeUrl: a.GetTypeUrl(), Name: evil, XdsConfig: a}}},
		}}})
	})

	out, stderr, code := run(t, "explain", "-o", "json", "--listener", evil, process, "xds:///a", "/a.B/C")
	var e explain.Explanation
	if err := json.Unmarshal([]byte(out), &e); code != 0 || err != nil || len(e.Clusters) != 1 || e.Clusters[0].Name != evil {
		t.Errorf("status %d, %s, error %v: %+v", code, stderr, err, e)
	}
	_, stderr, code = run(t, "explain", process, "xds:///nobody", "/a.B/C")
	if code == 0 {
		t.Error("a Listener that is not there is explained")
	}
	for _, text := range []string{out, stderr} {
		for _, c := range text {
			if c != '\n' && !unicode.IsPrint(c) {
				t.Fatalf("the text has the character %q:\n%q", c, text)
			}
		}
	}
}

type canned struct {
	statuspb.UnimplementedClientStatusDiscoveryServiceServer
	answer *statuspb.ClientStatusResponse
}

func (c canned) FetchClientStatus(context.Context, *statuspb.ClientStatusRequest) (*statuspb.ClientStatusResponse, error) {
	return c.answer, nil
}
