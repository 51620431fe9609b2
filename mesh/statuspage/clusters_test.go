package statuspage

import (
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
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
	if b.Name != "broken" || b.Share != "100 %" || b.Endpoints.Failing != 1 || !strings.Contains(b.Error, "connection refused") || b.Since.IsZero() || b.RPCs.Minute.P99 != nil {
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
		if got := methodOf(decodedMatch(t, route)); got != want {
			t.Errorf("prefix %q: %q, want %q", path, got, want)
		}
	}
	if got := methodOf(decodedMatch(t, xdsmsg.PathRoute("/a.B/C", "c"))); got != "/a.B/C" {
		t.Errorf("path: %q", got)
	}
}

func TestPlaneVerdict(t *testing.T) {
	since := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	published := &planestate.Published{Services: 2, Policies: 1, At: since}
	valid := &planestate.State{Place: "folder", Name: "mesh", Published: published}
	faulty := &planestate.State{Place: "folder", Name: "mesh", Published: published, FaultySince: &since, Faults: 3}
	permissive := *faulty
	permissive.Permissive = true
	for _, tc := range []struct {
		name string
		of   *planestate.State
		to   clients.Standings
		want livestate.Health
		text string
	}{
		{"healthy", valid, clients.Standings{Clients: 30, InSync: 29, Behind: 1}, livestate.Healthy,
			"Healthy: 30 clients · folder mesh valid · 29 in sync, 1 behind, 0 refusing · 2 services, 1 policy · published"},
		{"nothing published", &planestate.State{Place: "folder", Name: "mesh", FaultySince: &since, Faults: 1}, clients.Standings{}, livestate.Failing,
			"Failing: nothing is published yet · folder mesh with 1 error"},
		{"refused", valid, clients.Standings{Clients: 30, InSync: 28, Refusing: 2}, livestate.Failing,
			"Failing: 2 of 30 clients refuse their configuration · folder mesh valid · 28 in sync, 0 behind, 2 refusing · 2 services, 1 policy · published"},
		{"faulty", faulty, clients.Standings{Clients: 1, InSync: 1}, livestate.Degraded,
			"Degraded: the folder has 3 errors; clients keep what was published last · folder mesh with 3 errors · 1 in sync, 0 behind, 0 refusing · 2 services, 1 policy · published"},
		{"permissive", &permissive, clients.Standings{}, livestate.Degraded, "Degraded: the folder has 3 errors; published nevertheless (--permissive) · folder mesh with 3 errors · 2 services, 1 policy · published"},
		{"the store is gone", &planestate.State{Place: "store", Name: "etcd", Published: published, GoneSince: &since}, clients.Standings{}, livestate.Degraded,
			"Degraded: the store has not answered; clients keep what was published last · store etcd valid · 2 services, 1 policy · published"},
		{"a withdrawal waits", &planestate.State{Place: "folder", Name: "mesh", Published: published, Waiting: "it withdraws much"}, clients.Standings{}, livestate.Degraded,
			"Degraded: a large withdrawal of services waits · folder mesh valid · 2 services, 1 policy · published"},
		{"errors for some clients", &planestate.State{Place: "folder", Name: "mesh", Published: &planestate.Published{Services: 2, Policies: 1, At: since, Errors: 1, Reports: []string{"a.yaml:1: error"}}}, clients.Standings{Clients: 1, InSync: 1},
			livestate.Degraded, "Degraded: 1 error in what is published; some clients get errors in place of resources, or their RPCs fail · folder mesh valid · 1 in sync, 0 behind, 0 refusing · 2 services, 1 policy · published"},
		{"warnings", &planestate.State{Place: "folder", Name: "mesh", Published: &planestate.Published{Services: 2, Policies: 1, At: since, Warnings: 3}}, clients.Standings{Clients: 1, InSync: 1},
			livestate.Healthy, "Healthy: 1 client · folder mesh valid, 3 warnings · 1 in sync, 0 behind, 0 refusing · 2 services, 1 policy · published"},
		{"late", nil, clients.Standings{Clients: 3, InSync: 1, Behind: 2, Late: 1}, livestate.Degraded, "Degraded: 1 of 3 clients do not answer · 1 in sync, 2 behind, 0 refusing"},
		{"nobody", nil, clients.Standings{}, livestate.Unknown, "Unknown: no client is connected"},
		{"ready", valid, clients.Standings{}, livestate.Healthy, "Healthy: ready, no client is connected · folder mesh valid · 2 services, 1 policy · published"},
	} {
		v := judgePlane(tc.of, tc.to)
		var parts []string
		for _, p := range v.Parts {
			parts = append(parts, p.Text)
		}
		if text := strings.Join(parts, " · "); v.State != tc.want || text != tc.text {
			t.Errorf("%s: %s\n %s, want %s\n %s", tc.name, v.State, text, tc.want, tc.text)
		}
	}
}

// A page of a control plane says what its documents are.
func TestConfigurationOfAControlPlane(t *testing.T) {
	plane := meshtest.StartServer(t)
	since := time.Now()
	state := Configuration{Place: "folder", Name: "mesh", FaultySince: &since, Faults: 2, First: "mesh/a.yaml:12: no service x"}
	h := quick(WithControlPlane(plane.Control(), plane.Store()), WithConfiguration(func() Configuration {
		return state
	}))
	o := section[overview](t, h, "overview")
	if o.Verdict != nil || o.Plane.State != livestate.Failing || len(o.Problems) != 1 || o.Problems[0].Severity != livestate.Failing ||
		o.Problems[0].Text != "the folder has 2 errors; nothing is published yet: mesh/a.yaml:12: no service x" || o.Plane.Configuration.Faults != 2 {
		t.Errorf("overview %+v", o)
	}
	state = Configuration{Place: "folder", Name: "mesh", Published: &planestate.Published{At: since, Errors: 2, Reports: []string{"mesh/a.yaml:12: no service y"}}}
	o = section[overview](t, h, "overview")
	if o.Plane.State != livestate.Degraded || len(o.Problems) != 1 || !strings.HasPrefix(o.Problems[0].Text, "2 errors in what is published; ") || !strings.HasSuffix(o.Problems[0].Text, ": mesh/a.yaml:12: no service y") {
		t.Errorf("with faults in what is published: overview %+v", o)
	}
}
