package e2e_test

import (
	"crypto/rand"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	statuspb "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/outcomes"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/observe/csds"
	"github.com/dynxds/dynxds/testutils"
)

// newService is ownService with another name each time that the test runs, as RPCs are counted by the target.
func newService(t *testing.T) string { return ownService(t) + "-" + strings.ToLower(rand.Text()) }

// statusService starts CSDS for this process, and returns a client of it.
func statusService(t *testing.T) statuspb.ClientStatusDiscoveryServiceClient {
	t.Helper()
	s := grpc.NewServer()
	xdstest.NoError(t, csds.Register(s))
	return statuspb.NewClientStatusDiscoveryServiceClient(dial(t, xdstest.Serve(t, nil, s)))
}

// stateOf returns the live state of the client that the channel to a service uses, as CSDS has it.
func stateOf(t *testing.T, s statuspb.ClientStatusDiscoveryServiceClient, service string) *livestate.State {
	t.Helper()
	answer, err := s.FetchClientStatus(testutils.Context(t), &statuspb.ClientStatusRequest{ExcludeResourceContents: true})
	xdstest.NoError(t, err)
	for _, c := range answer.GetConfig() {
		if !strings.Contains(c.GetClientScope(), service) {
			continue
		}
		i := slices.IndexFunc(c.GetGenericXdsConfigs(), func(e *statuspb.ClientConfig_GenericXdsConfig) bool { return e.GetName() == csds.StateName })
		if i < 0 {
			t.Fatal("the client has no state")
		}
		values, state := new(structpb.Struct), new(livestate.State)
		xdstest.NoError(t, c.GetGenericXdsConfigs()[i].GetXdsConfig().UnmarshalTo(values))
		text, err := values.MarshalJSON()
		xdstest.NoError(t, err)
		xdstest.NoError(t, json.Unmarshal(text, state))
		return state
	}
	t.Fatalf("no client is for %s", service)
	return nil
}

// What CSDS says is what RPCs meet: from well over an endpoint that is down to a total outage, and a control plane that
// is lost.
func TestStateFollowsAnOutage(t *testing.T) {
	t.Parallel()
	inOneWay(t, "RPCs are counted in the process, however it gets its configuration")
	m, service, s := newMesh(t), newService(t), statusService(t)
	a, b := testutils.StartBackend(t, "a"), testutils.StartBackend(t, "b")
	name := "c-" + service
	m.serve(service, name, a, b)
	outcomes.Look()
	cc := m.dial("xds:///" + service)
	await := func(what string, ok func(*livestate.State) bool) *livestate.State {
		t.Helper()
		return awaitInspect(t, what, func() *livestate.State { return stateOf(t, s, service) }, ok)
	}
	for range 10 {
		_, err := call(testutils.Context(t), cc, unary, grpc.WaitForReady(true))
		xdstest.NoError(t, err)
	}
	state := await("both endpoints are connected", func(s *livestate.State) bool { return len(s.Clusters) == 1 && s.Clusters[0].Endpoints.Ready == 2 })
	c := state.Clusters[0]
	if state.Verdict.State != livestate.Healthy || len(state.Problems) > 0 || c.Health != livestate.Healthy || c.Name != name || c.Target != "xds:///"+service ||
		c.RPCs == nil || c.RPCs.Codes["OK"] < 10 || c.RPCs.Minute.P99 == nil || *c.RPCs.Minute.P99 <= 0 || !strings.Contains(state.Verdict.Text, "no errors in ") {
		t.Errorf("while all is well: %s, problems %+v, cluster %+v, RPCs %+v", state.Verdict.Text, state.Problems, c, c.RPCs)
	}
	b.Stop()
	state = await("an endpoint is down", func(s *livestate.State) bool { return s.Clusters[0].Endpoints.Failing == 1 })
	if p := state.Problems; state.Verdict.State != livestate.Degraded || len(p) != 1 || p[0].Severity != livestate.Degraded || p[0].Cluster != name ||
		!containsAll(p[0].Text, "1 of 2 endpoints cannot be reached", b.Addr(), "connection refused") || p[0].Since.IsZero() {
		t.Errorf("with an endpoint down: %s, problems %+v", state.Verdict.Text, state.Problems)
	}
	if bad := state.Clusters[0].BadEndpoints; len(bad) != 1 || bad[0].Address != b.Addr() || !strings.Contains(bad[0].Error, "connection refused") {
		t.Errorf("the bad endpoints are %+v", bad)
	}
	a.Stop()
	awaitState(t, cc, connectivity.TransientFailure)
	for range 100 {
		mustFail(t, cc, "connection refused")
	}
	state = await("all endpoints are down", func(s *livestate.State) bool { return s.Clusters[0].Health == livestate.Failing })
	c = state.Clusters[0]
	if p := state.Problems; state.Verdict.State != livestate.Failing || !strings.HasPrefix(state.Verdict.Text, "Failing: the only cluster · ") ||
		!strings.Contains(state.Verdict.Text, "% errors") || len(p) != 1 || !containsAll(p[0].Text, "no endpoint can be reached", "connection refused", " RPCs in the last ", " failed") {
		t.Errorf("in the outage: %s, problems %+v", state.Verdict.Text, state.Problems)
	}
	if c.RPCs.Codes["UNAVAILABLE"] < 100 || c.RPCs.Last == nil || c.RPCs.Last.Code != "UNAVAILABLE" || c.RPCs.InFlight != 0 {
		t.Errorf("in the outage the RPCs are %+v, the last error %+v", c.RPCs, c.RPCs.Last)
	}
	m.Stop()
	state = await("the control plane is lost", func(s *livestate.State) bool { return len(s.Servers) == 1 && s.Servers[0].Error != "" })
	if p := state.Problems; len(p) != 2 || p[0].Kind != "cluster" || p[1].Kind != "server" || p[1].Server != state.Servers[0].URI ||
		!strings.Contains(state.Verdict.Text, "control plane unreachable") {
		t.Errorf("without a control plane: %s, problems %+v", state.Verdict.Text, state.Problems)
	}
}
