package configselector_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/outcomes"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// outcomesOf returns what is counted for a route, whatever its cluster.
func outcomesOf(route string) *outcomes.Report {
	all := new(outcomes.Report)
	for _, r := range outcomes.Reports() {
		if r.Route == route {
			all.Key = r.Key
			all.Add(r)
		}
	}
	return all
}

// withName returns a route with a name of its own, by which the test finds what is counted: the table is that of the process.
func withName(name string, r *xdsresource.Route) *xdsresource.Route {
	r.Name = name
	return r
}

// An RPC that no route takes counts for its channel, and a header that names a cluster changes nothing. Other tests make such RPCs too,
// so this test does not run beside others.
func TestOutcomesWithoutARoute(t *testing.T) {
	outcomes.Look()
	own := "by header " + rand.Text()
	byHeader := withName(own, toC())
	byHeader.Match = matching.Route{PathKind: matching.PathExact, Path: "/s/header"}
	byHeader.Action = &xdsresource.Forward{Clusters: []xdsresource.WeightedCluster{{Header: "cluster", Weight: 1}}}
	known := toC()
	known.Match = matching.Route{PathKind: matching.PathExact, Path: "/s/known"}
	known.Action = &xdsresource.Forward{Clusters: []xdsresource.WeightedCluster{{Name: "c", Weight: 1}, {Name: "d", Weight: 1}}}
	w := newWorld(t, worldConfig{routes: []*xdsresource.Route{byHeader, known}})
	before := outcomesOf("").Codes["UNAVAILABLE"]
	w.makeRPC(t.Context(), kinds[0], "/s/other", []string{"x"})
	w.makeRPC(t.Context(), kinds[1], "/s/other", []string{"x"})
	if n := outcomesOf("").Codes["UNAVAILABLE"] - before; n != 2 {
		t.Errorf("%d RPCs without a route are counted, want 2", n)
	}
	w.makeRPC(metadata.AppendToOutgoingContext(t.Context(), "cluster", "invented"), kinds[0], "/s/header", []string{"x"})
	if r := outcomesOf(own); r.Codes["UNAVAILABLE"] != 1 || r.Cluster != "" {
		t.Errorf("an RPC to an invented cluster is counted as %+v", r)
	}
	if slices.ContainsFunc(outcomes.Reports(), func(r *outcomes.Report) bool { return r.Cluster == "invented" }) {
		t.Error("headers make Counters")
	}
	for range 2 {
		for _, cluster := range []string{"c", "d"} {
			w.makeRPC(metadata.AppendToOutgoingContext(t.Context(), "cluster", cluster), kinds[0], "/s/header", []string{"x"})
		}
	}
	by := map[string]uint64{}
	for _, r := range outcomes.Reports() {
		if r.Route == own {
			by[r.Cluster] += r.Codes["OK"]
		}
	}
	xdstest.Equal(t, "RPCs by the cluster that a header names", map[string]uint64{"": 0, "c": 2, "d": 2}, by)
}

// Routes with the same settings share them, and are counted apart.
func TestOutcomesOfRoutesToTheSameClusters(t *testing.T) {
	t.Parallel()
	outcomes.Look()
	for _, clusters := range [][]xdsresource.WeightedCluster{{{Name: "c", Weight: 1}}, {{Name: "c", Weight: 1}, {Name: "d", Weight: 1<<32 - 2}}} {
		first := withName("first "+rand.Text(), toC())
		first.Action = &xdsresource.Forward{Clusters: clusters}
		second := &xdsresource.Route{Name: "second " + rand.Text(), Settings: first.Settings}
		first.Match = matching.Route{PathKind: matching.PathExact, Path: "/s/first"}
		w := newWorld(t, worldConfig{routes: []*xdsresource.Route{first, second}})
		for _, method := range []string{"/s/first", "/s/second", "/s/second"} {
			w.makeRPC(t.Context(), kinds[0], method, []string{"x"})
		}
		if a, b := outcomesOf(first.Name), outcomesOf(second.Name); a.Codes["OK"] != 1 || b.Codes["OK"] != 2 {
			t.Errorf("the first route has %v, the second %v, want 1 and 2", a.Codes, b.Codes)
		}
	}
}

// An RPC whose code panics has ended, whatever the application makes of the panic.
func TestOutcomesOfPanics(t *testing.T) {
	t.Parallel()
	outcomes.Look()
	failing := filterOf("panics", func(context.Context, *httpfilter.RPC, httpfilter.Next) (grpc.ClientStream, error) {
		panic("in a filter")
	})
	for name, listener := range map[string]xdsresource.Listener{
		"plain": {}, "filtered": chainOf(filterOf("pass", pass)), "in a filter": chainOf(failing),
	} {
		eachKind(t, func(t *testing.T, k kind) {
			route := fmt.Sprint("panics ", name, " ", k.name, " ", rand.Text())
			w := newWorld(t, worldConfig{routes: []*xdsresource.Route{withName(route, toC())}, listener: listener})
			w.pick = func(context.Context) error { panic("in an interceptor") }
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s: no panic reaches the application", name)
					}
				}()
				w.makeRPC(t.Context(), k, "/s/m", []string{"x"})
			}()
			if r := outcomesOf(route); r.InFlight != 0 || r.Codes["INTERNAL"] != 1 {
				t.Errorf("%s: %+v, want one INTERNAL", name, r)
			}
		})
	}
}
