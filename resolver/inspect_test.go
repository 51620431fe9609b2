package resolver

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/xdsclient"
)

// What the graph follows and waits for, from the first request on.
func TestInspectFollowsTheGraph(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	want := inspect.Config{Listener: inspect.Resource{Type: "Listener", Name: "L"}}
	expect := func(when string) {
		t.Helper()
		f.graph.snapshot()
		if diff := cmp.Diff(want, f.graph.inspect()); diff != "" {
			t.Errorf("%s: the configuration (-want +got):\n%s", when, diff)
		}
	}
	expect("at first")
	f.answer("Listener L", toRDS("R"))
	want.Listener.Known = true
	want.NextRoutes = &inspect.Resource{Type: "RouteConfiguration", Name: "R"}
	expect("the Listener is known")
	f.answer("RouteConfiguration R", routes("R", "a"))
	want.Routes, want.NextRoutes = want.NextRoutes, nil
	want.Routes.Known, want.VirtualHost, want.Clusters = true, "host", 1
	expect("the routes are known") // The first configuration waits for no cluster.
	f.serve("a", "1")
	expect("the cluster is known")

	f.answer("RouteConfiguration R", routes("R", "a", "b", "c"))
	want.Clusters, want.Waits, want.WaitsFor = 3, 2, []string{"b", "c"}
	expect("new routes wait for their clusters")
	f.serve("b", "2")
	want.Waits, want.WaitsFor = 1, []string{"c"}
	expect("one has answered")
	f.serve("c", "3")
	want.Waits, want.WaitsFor = 0, nil
	expect("all have answered")

	f.ambient("RouteConfiguration R", failure(xdsclient.KindInvalid, "bad route"))
	want.Routes.Ambient = f.graph.rds.ambient.Load().fault.Error()
	expect("a newer version is invalid")
	if want.Routes.Ambient == "" {
		t.Error("the reason is missing")
	}
	f.answer("Listener L", toRDS("R2"))
	want.NextRoutes = &inspect.Resource{Type: "RouteConfiguration", Name: "R2"}
	expect("another RouteConfiguration is waited for")
	f.answer("Listener L", &xdsresource.Listener{Name: "L", RouteConfig: routes("inline", "a")})
	want.Routes, want.NextRoutes, want.Inline, want.Clusters = nil, nil, true, 1
	expect("the routes are in the Listener")
	f.answer("Listener L", errors.New("deleted"))
	want = inspect.Config{Listener: inspect.Resource{Type: "Listener", Name: "L", Error: "deleted"}, Error: "deleted"}
	expect("the Listener was deleted")
}

func TestInspectBoundsWhatIsWaitedFor(t *testing.T) {
	t.Parallel()
	f := configured(t)
	var many []string
	for i := range 3 * inspect.MaxWaits {
		many = append(many, fmt.Sprint("c", i))
	}
	f.answer("RouteConfiguration R", routes("R", many...))
	if c := f.graph.inspect(); len(c.WaitsFor) != inspect.MaxWaits || c.Waits != len(many) {
		t.Errorf("%d of %d clusters that are waited for are named, want %d of %d", len(c.WaitsFor), c.Waits, inspect.MaxWaits, len(many))
	}
}

// The resources that lead to a cluster, those of an aggregate cluster's members and of DNS too.
func TestInspectNamesTheResourcesOfACluster(t *testing.T) {
	t.Parallel()
	f := routed(t, "agg", "eds")
	expect := func(when, cluster string, want ...inspect.Resource) {
		t.Helper()
		_, got, ok := f.graph.inspectCluster(cluster)
		if diff := cmp.Diff(want, got); diff != "" || !ok {
			t.Errorf("%s: resources of %q (-want +got):\n%s", when, cluster, diff)
		}
	}
	const target = "inspect.fake:80"
	requested := func(typ, name string) inspect.Resource { return inspect.Resource{Type: typ, Name: name} }
	known := func(typ, name string) inspect.Resource { return inspect.Resource{Type: typ, Name: name, Known: true} }
	expect("at first", "agg", requested("Cluster", "agg"))
	f.answer("Cluster agg", &xdsresource.Cluster{Name: "agg", Kind: xdsresource.ClusterAggregate, Underlying: []string{"m", "d"}})
	f.answer("Cluster m", eds("service"))
	f.answer("Cluster d", inlined("d", xdsresource.ClusterStrictDNS, target))
	expect("the members are known", "agg", known("Cluster", "agg"),
		known("Cluster", "d"), requested("DNS name", target), known("Cluster", "m"), requested("ClusterLoadAssignment", "service"))
	f.answer("ClusterLoadAssignment service", errors.New("no such service"))
	names.answer(t, target, "192.0.2.1:80")
	expect("they have answered", "agg", known("Cluster", "agg"),
		known("Cluster", "d"), known("DNS name", target), known("Cluster", "m"),
		inspect.Resource{Type: "ClusterLoadAssignment", Name: "service", Error: "no such service"})
	expect("another cluster", "eds", requested("Cluster", "eds"))
	if _, _, ok := f.graph.inspectCluster("m"); ok {
		t.Error("a member of an aggregate cluster is known as a cluster of the routes")
	}
}
