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
