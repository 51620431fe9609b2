package e2e_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	statuspb "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/outcomes"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/observe/csds"
	"github.com/dynxds/dynxds/testutils"
)

// newService is ownService with another name each time that the test runs, as RPCs are counted by the target.
func newService(t *testing.T) string { return ownService(t) + "-" + strings.ToLower(rand.Text()) }

// statusService starts CSDS for this process, and returns a client of it.
func statusService(t *testing.T) statuspb.ClientStatusDiscoveryServiceClient {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	xdstest.NoError(t, err)
	s := grpc.NewServer()
	xdstest.NoError(t, csds.Register(s))
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return statuspb.NewClientStatusDiscoveryServiceClient(dial(t, l.Addr().String()))
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

// RPCs that have no route or no configuration are counted, and a cluster is told why its RPCs fail although its
// endpoints are connected.
func TestStateOfRPCsThatFail(t *testing.T) {
	t.Parallel()
	inOneWay(t, "RPCs are counted in the process, however it gets its configuration")
	m, service, s := newMesh(t), newService(t), statusService(t)
	backend := testutils.StartBackend(t, "b")
	backend.Fail(status.Error(codes.Internal, "broken inside"))
	name := "c-" + service
	m.set(xdsmsg.DefaultListener(service, service), xdsmsg.RouteConfig(service, service, xdsmsg.PathRoute(unaryMethod, name)),
		xdsmsg.EDSCluster(name, ""), endpointsOf(name, backend))
	outcomes.Look()
	cc := m.dial("xds:///" + service)
	ctx, cancel := context.WithTimeout(testutils.Context(t), 10*time.Second)
	defer cancel()
	for range 3 {
		if _, err := call(ctx, cc, unary, grpc.WaitForReady(true)); status.Code(err) != codes.Internal {
			t.Fatal(err)
		}
		if _, err := call(ctx, cc, bidiStreaming); !strings.Contains(err.Error(), "no route matches") {
			t.Fatal(err)
		}
	}
	state := stateOf(t, s, service)
	c := state.Clusters[0]
	if c.Health != livestate.Failing || c.State != "READY" || c.RPCs.Codes["INTERNAL"] != 3 || !containsAll(c.Error, "RPCs fail", "INTERNAL: broken inside") {
		t.Errorf("the cluster is %+v with RPCs %+v", c, c.RPCs)
	}
	if r := state.Channels[0].RPCs; r == nil || r.Codes["UNAVAILABLE"] != 3 {
		t.Errorf("RPCs without a route are %+v", r)
	}
	if len(state.Problems) != 2 || !containsAll(state.Problems[0].Text, c.Error, "100 % of 3 RPCs") || state.Problems[1].Kind != "rpcs" || !containsAll(state.Problems[1].Text, "3 RPCs", "no route matches") {
		t.Errorf("the problems are %+v", state.Problems)
	}
	m.set(xdsmsg.DefaultListener(service, service+"-2"), xdsmsg.RouteConfig(service+"-2", "another.example.com"))
	awaitInspect(t, "no virtual host", func() *livestate.State { return stateOf(t, s, service) }, func(s *livestate.State) bool {
		return len(s.Channels) == 1 && s.Channels[0].Error != ""
	})
	// An RPC that meets the change between routing and picking is one of the cluster.
	until(t, cc, "RPCs that have no configuration are counted", func(_ string, err error) bool {
		state = stateOf(t, s, service)
		return err != nil && strings.Contains(err.Error(), "no virtual host") && state.Channels[0].RPCs.Codes["UNAVAILABLE"] > 3
	})
	if state.Verdict.State != livestate.Failing || state.Problems[0].Kind != "channel" ||
		!strings.HasPrefix(state.Verdict.Text, "Failing: 1 of 1 channel without configuration") {
		t.Errorf("without a virtual host: %s, problems %+v", state.Verdict.Text, state.Problems)
	}
}
