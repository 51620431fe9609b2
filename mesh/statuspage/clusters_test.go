package statuspage

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
	"github.com/dynxds/dynxds/mesh/internal/clients"
	"github.com/dynxds/dynxds/mesh/internal/planestate"
	"github.com/dynxds/dynxds/mesh/meshtest"
	"github.com/dynxds/dynxds/testutils"
)

// A row has what became of the cluster's RPCs, and a problem leads to the cluster and to a method.
func TestClusters(t *testing.T) {
	one, down := testutils.StartBackend(t, "one"), testutils.StartBackend(t, "down")
	down.Stop()
	service := "clusters-" + strings.ToLower(rand.Text()) // RPCs are counted by the target
	plane := meshtest.StartServer(t)
	plane.Set(t,
		xdsmsg.DefaultListener(service, "routes"),
		xdsmsg.RouteConfig("routes", service, xdsmsg.PathRoute("/grpc.testing.TestService/EmptyCall", "works"), xdsmsg.PrefixRoute("/grpc.testing.TestService/", "broken"), xdsmsg.PathRoute("/a.B/C", "unused")),
		xdsmsg.EDSCluster("works", ""), xdsmsg.EDSCluster("broken", ""), xdsmsg.EDSCluster("unused", ""),
		xdsmsg.SimpleEndpoints("works", one.Addr()), xdsmsg.SimpleEndpoints("broken", down.Addr()), xdsmsg.SimpleEndpoints("unused", one.Addr()))
	conn := dialTo(t, plane, "clusters", service)
	h := quick()
	section[overview](t, h, "overview") // RPCs are counted from now on
	for range 5 {
		xdstest.NoError(t, call(t, conn))
		if err := conn.Invoke(testutils.Context(t), "/grpc.testing.TestService/UnaryCall", xdsmsg.DefaultListener("", ""), xdsmsg.DefaultListener("", "")); err == nil {
			t.Fatal("an RPC to a backend that is down works")
		}
	}
	got := await(t, h, "clusters", func(c clustersView) bool {
		return len(c.Items) == 3 && c.Items[0].Health == livestate.Failing && c.Items[0].RPCs != nil && c.Items[0].RPCs.Minute.Failed == 5 && c.Items[1].Health == livestate.Healthy
	})
	b, w := got.Items[0], got.Items[1]
	if b.Name != "broken" || b.RPCs.Minute.Share() != 1 || b.Endpoints.Failing != 1 || !strings.Contains(b.Error, "connection refused") || b.Since.IsZero() || b.RPCs.Minute.P99 != nil {
		t.Errorf("the first row is %+v", b)
	}
	if w.Name != "works" || w.RPCs.Minute.Ended != 5 || w.RPCs.Minute.Failed != 0 || w.RPCs.Minute.P99 == nil || w.Endpoints.Ready != 1 || got.Items[2].Health != livestate.Idle || got.Targets {
		t.Errorf("the other rows are %+v", got.Items[1:])
	}
	explained := get(t, h, "/explain?target=xds:///"+service+"&method=/grpc.testing.TestService/UnaryCall")
	if text := explained.Body.String(); !strings.Contains(text, `5 failed (100.0 %)`) {
		t.Errorf("the explanation does not say that RPCs fail: %s", text)
	}
	o := section[overview](t, h, "overview")
	if len(o.Problems) != 1 || o.Problems[0].Method != "/grpc.testing.TestService/Method" || o.Problems[0].ID != b.ID || o.Problems[0].Channel != b.Channel || b.Channel == 0 {
		t.Errorf("the problems are %+v", o.Problems)
	}
	for state, name := range map[string]string{"failing": "broken", "healthy": "works", "idle": "unused"} {
		if c := section[clustersView](t, h, "clusters", "clusters.state", state); c.Found != 1 || c.Items[0].Name != name {
			t.Errorf("state %s: %+v", state, c.Items)
		}
	}
	if c := section[clustersView](t, h, "clusters", "clusters.sort", "name"); c.Items[0].Name != "broken" || c.Items[1].Name != "unused" {
		t.Errorf("by name: %+v", c.Items)
	}
	// The graph of one cluster, and of one route.
	if g := section[graphView](t, h, "graph", "graph.cluster", b.ID); len(g.Clusters) != 1 || g.Clusters[0].Name != "broken" || g.Routes.Found != 1 || g.Chosen != "broken" {
		t.Errorf("the graph of one cluster is %+v", g)
	}
	if g := section[graphView](t, h, "graph", "graph.route", "0"); len(g.Clusters) != 1 || g.Clusters[0].Name != "works" || g.Routes.Found != 1 || g.Routes.Items[0].To[0].Traffic != 50 {
		t.Errorf("the graph of one route is %+v", g)
	}
}

func TestMethodsForWhy(t *testing.T) {
	for path, want := range map[string]string{"": "/any.Service/Method", "/": "/any.Service/Method", "/a.B/": "/a.B/Method", "/a.B": "/a.B/Method", "/a.B/Get": "/a.B/Get"} {
		route := xdsmsg.PrefixRoute(path, "c")
		xdstest.Equal(t, "prefix "+path, want, methodOf(decodedMatch(t, route)))
	}
	xdstest.Equal(t, "path", "/a.B/C", methodOf(decodedMatch(t, xdsmsg.PathRoute("/a.B/C", "c"))))
}

// The verdict on a control plane, by the state of its documents and the standings of its clients, which are two lines of JSON in
// testdata/planes.txt, and what is wrong with the documents.
func TestPlaneVerdict(t *testing.T) {
	golden.Cases(t, "testdata/planes.txt", func(_, input string) string {
		var state *planestate.State
		var standings clients.Standings
		documents, of, _ := strings.Cut(input, "\n")
		xdstest.NoError(t, json.Unmarshal([]byte(documents), &state))
		xdstest.NoError(t, json.Unmarshal([]byte(of), &standings))
		v := judgePlane(state, standings)
		var parts []string
		for _, p := range v.Parts {
			parts = append(parts, p.Text)
		}
		printed := fmt.Sprintln(string(v.State)+":", strings.Join(parts, " · "))
		if state != nil {
			for _, p := range configurationProblems(state) {
				printed += fmt.Sprintln(string(p.Severity)+" "+p.Kind+", "+p.Subject+":", p.Text)
			}
		}
		return printed
	})
}
