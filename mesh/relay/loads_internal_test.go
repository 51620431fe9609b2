package relay

import (
	"testing"

	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/mesh/controlplane"
)

// What was reported is passed on once, and a cluster that is not known any more takes nothing.
func TestForgottenLoads(t *testing.T) {
	t.Parallel()
	key := load.Key{Cluster: "c"}
	store := load.NewStore(func() {})
	l := &loads{clusters: map[load.Key]relayedLoad{key: {store, store.Use(key, nil)}}}
	for _, n := range []uint64{5, 0, 3} {
		l.forward([]controlplane.ClusterLoad{{
			Cluster: "c", TotalDropped: n, Dropped: map[string]uint64{"lb": n},
			Localities: []controlplane.LocalityLoad{{Zone: "a", Issued: n, InProgress: 1}},
		}})
		reports := store.Take(nil)
		if len(reports) != 1 || len(reports[0].Localities) != 1 {
			t.Fatalf("%d: got %+v, want one report of one locality", n, reports)
		}
		r := reports[0]
		if got := r.Localities[0].Counts; got != (load.Counts{Issued: n, InProgress: 1}) || r.TotalDropped != n || r.Dropped["lb"] != n {
			t.Errorf("%d: got %+v of %+v", n, got, r)
		}
	}
	l.forward(nil)
	if len(l.clusters) != 0 || store.InUse() {
		t.Errorf("%d clusters are left", len(l.clusters))
	}
}
