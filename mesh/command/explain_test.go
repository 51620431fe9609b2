package command

import (
	"context"
	"encoding/json"
	"testing"
	"unicode"

	statuspb "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/mesh/explain"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
)

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
