package relay

import (
	"testing"

	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/mesh/controlplane"
)

// A sum that begins again, as it was forgotten, is passed on from 0, and a cluster that is not known any more takes nothing.
func TestForgottenLoads(t *testing.T) {
	t.Parallel()
	key := load.Key{Cluster: "c"}
	store := load.NewStore(func() {})
	l := &loads{clusters: map[load.Key]*relayedLoad{
		key: {store: store, cluster: store.Use(key), localities: make(map[load.LocalityID]*load.Locality)},
	}}
	for _, sum := range []struct{ issued, inProgress, dropped, wantIssued, wantDropped uint64 }{
		{5, 1, 3, 5, 3},
		{7, 2, 4, 2, 1},
		{6, 0, 2, 6, 2},
	} {
		l.forward([]controlplane.ClusterLoad{{
			Cluster: "c", TotalDropped: sum.dropped, Dropped: map[string]uint64{"lb": sum.dropped},
			Localities: []controlplane.LocalityLoad{{Zone: "a", Issued: sum.issued, InProgress: sum.inProgress}},
		}})
		reports := store.Take(func(string) bool { return true })
		if len(reports) != 1 || len(reports[0].Localities) != 1 {
			t.Fatalf("%+v: got %+v, want one report of one locality", sum, reports)
		}
		r := reports[0]
		if got := r.Localities[0].Counts; got.Issued != sum.wantIssued || got.InProgress != sum.inProgress || r.TotalDropped != sum.wantDropped || r.Dropped["lb"] != sum.wantDropped {
			t.Errorf("%+v: got %+v of %+v", sum, got, r)
		}
	}
	l.forward(nil)
	if len(l.clusters) != 0 || store.InUse() {
		t.Errorf("%d clusters are left", len(l.clusters))
	}
}
