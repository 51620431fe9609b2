package conns_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/balancer"

	"github.com/dynxds/dynxds/balancer/internal/conns"
	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// loadsIn counts the RPCs of a cluster in a store.
func loadsIn(s *load.Store) *load.Cluster { return s.Use(load.Key{Cluster: "c"}, nil) }

func in(zone string, endpoints ...xdsresource.Endpoint) xdsresource.Locality {
	return xdsresource.Locality{ID: xdsresource.LocalityID{Zone: zone}, Endpoints: endpoints}
}

// rpcs makes an RPC on each of the connections.
func rpcs(users ...*lbtest.User) {
	for _, u := range users {
		u.Start()(balancer.DoneInfo{BytesSent: true})
	}
}

// expectIssued takes the numbers of RPCs by zone.
func expectIssued(t *testing.T, when string, s *load.Store, want ...string) {
	t.Helper()
	var got []string
	for _, r := range s.Take(nil) {
		for _, l := range r.Localities {
			got = append(got, fmt.Sprintf("%s:%d", cmp.Or(l.ID.Zone, "?"), l.Issued))
		}
	}
	slices.Sort(got)
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

// An RPC counts for the locality that its endpoint is in when the RPC starts, also at its
// end.
func TestRPCsCountForTheLocalityOfTheirEndpoint(t *testing.T) {
	t.Parallel()
	s, other, r := load.NewStore(nil), load.NewStore(nil), lbtest.NewRegistry()
	east, west := xdsresource.Endpoint{Address: "a"}, xdsresource.Endpoint{Address: "c"}
	update := func(l *load.Cluster, localities ...xdsresource.Locality) {
		r.Update(conns.Config{Localities: localities, Loads: l})
	}
	loads := loadsIn(s)
	update(loads, in("east", both("a", "a2"), xdsresource.Endpoint{Address: "b"}), in("west", west))
	a, second, c, unknown := lbtest.NewUser(r, ready, "a"), lbtest.NewUser(r, ready, "a2"), lbtest.NewUser(r, ready, "c"), lbtest.NewUser(r, ready, "x")
	rpcs(a, second, c, unknown)
	expectIssued(t, "at first", s, "?:1", "east:2", "west:1")

	end := a.Start()
	update(loads, in("west", east, west))
	rpcs(a, c)
	expectIssued(t, "after the endpoint has moved", s, "east:1", "west:2")
	rpcs(second)
	expectIssued(t, "at an address that was removed", s, "east:1")
	end(balancer.DoneInfo{BytesSent: true})
	reports := s.Take(nil)
	if l := reports[0].Localities[0]; l.ID.Zone != "east" || l.Succeeded != 1 || l.InProgress != 0 {
		t.Errorf("the RPC that was in flight ended as %+v", l)
	}

	update(nil, in("west", east, west))
	loads.Release()
	rpcs(a) // of a picker that was just replaced
	expectIssued(t, "in the end", s)

	update(loadsIn(other), in("north", east))
	rpcs(a, c)
	expectIssued(t, "for another server", other, "?:1", "north:1")
	expectIssued(t, "for the old server", s)
}
