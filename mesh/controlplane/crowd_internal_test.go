package controlplane

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdstest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// The asks for a name are found whether it has few or many, as clients come and go.
func TestAsks_OfFewAndManyConstraints(t *testing.T) {
	t.Parallel()
	store, rng := NewStore(), rand.New(rand.NewPCG(1, 2))
	clients := make([]*delta, 3)
	for i := range clients {
		clients[i] = &delta{newTestStream(store, ProtocolDelta, Options{})}
	}
	want := make([]map[int]bool, len(clients))
	grows, most := true, 0
	for range 3000 {
		i, shard := rng.IntN(len(clients)), rng.IntN(3*crowd)
		if want[i] == nil {
			want[i] = map[int]bool{}
		}
		if grows = rng.IntN(100) > 0 == grows; grows {
			shard = rng.IntN(2 * crowd)
		}
		req := &discoverypb.DeltaDiscoveryRequest{TypeUrl: typeurl.Endpoints}
		if one := []*discoverypb.ResourceLocator{fuzzLocator("n", "shard", fmt.Sprint(shard))}; rng.IntN(10) < 7 == grows || len(want[i]) == 0 {
			req.ResourceLocatorsSubscribe, want[i][shard] = one, true
		} else {
			req.ResourceLocatorsUnsubscribe = one
			delete(want[i], shard)
		}
		xdstest.NoError(t, clients[i].handleRequest(req))
		table := store.tables[typeurl.Endpoints]
		if table == nil {
			continue
		}
		all := table.asks.m[keyOf("n")]
		most = max(most, len(all))
		for at, a := range all {
			if a.at != at || table.ask(a.name, a.key) != a {
				t.Fatalf("%v is not found among %d", a.constraints, len(all))
			}
		}
		if (len(all) > crowd) != (table.crowds[keyOf("n")] != nil) || len(all) > crowd && len(table.crowds[keyOf("n")]) != len(all) {
			t.Fatalf("%d of %d asks are in the map", len(table.crowds[keyOf("n")]), len(all))
		}
		for i, p := range clients {
			if sub := p.subs[typeurl.Endpoints]; sub != nil && sub.count(keyOf("n")) != len(want[i]) {
				t.Fatalf("a client has %d asks, want %d", sub.count(keyOf("n")), len(want[i]))
			}
		}
	}
	if most <= crowd {
		t.Errorf("there were at most %d asks for the name", most)
	}
	for _, p := range clients {
		store.release(p.stream)
	}
	if len(store.tables) > 0 {
		t.Errorf("%d tables are left", len(store.tables))
	}
}
