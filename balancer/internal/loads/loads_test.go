package loads_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/balancer"

	"github.com/dynxds/dynxds/balancer/internal/loads"
	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

func at(zone string, endpoints ...xdsresource.Endpoint) xdsresource.Locality {
	return xdsresource.Locality{ID: xdsresource.LocalityID{Zone: zone}, Endpoints: endpoints}
}

func endpoint(addr string, additional ...string) xdsresource.Endpoint {
	return xdsresource.Endpoint{Address: addr, Additional: additional}
}

// rpc makes an RPC to the address of a Place.
func rpc(p *loads.Place) {
	t := p.Target()
	t.Start()
	t.End(balancer.DoneInfo{BytesSent: true})
}

// issued takes the RPCs by zone.
func issued(s *load.Store) []string {
	var got []string
	for _, r := range s.Take(nil) {
		for _, l := range r.Localities {
			got = append(got, fmt.Sprintf("%s:%d", cmp.Or(l.ID.Zone, "?"), l.Issued))
		}
	}
	slices.Sort(got)
	return got
}

func want(t *testing.T, when string, s *load.Store, want ...string) {
	t.Helper()
	if diff := gocmp.Diff(want, issued(s)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

// An RPC counts for the locality that its endpoint is in when it begins, and ends
// there.
func TestConnectionsFollowTheirEndpoints(t *testing.T) {
	t.Parallel()
	s := load.NewStore(nil)
	r := loads.New(s.Use(load.Key{Cluster: "c"}), nil)
	r.Update([]xdsresource.Locality{at("east", endpoint("a:1", "a:2"), endpoint("b:1")), at("west", endpoint("c:1"))})
	a, second, c, unknown := r.At("a:1"), r.At("a:2"), r.At("c:1"), r.At("x:1")
	for _, p := range []*loads.Place{a, second, c, unknown} {
		rpc(p)
	}
	want(t, "at first", s, "?:1", "east:2", "west:1")

	onItsWay := a.Target()
	onItsWay.Start()
	r.Update([]xdsresource.Locality{at("west", endpoint("a:1"), endpoint("c:1"))})
	rpc(a)
	rpc(c)
	want(t, "when the endpoint has moved", s, "east:1", "west:2")
	onItsWay.End(balancer.DoneInfo{BytesSent: true})
	reports := s.Take(nil)
	if l := reports[0].Localities[0]; l.ID.Zone != "east" || l.Succeeded != 1 || l.InProgress != 0 {
		t.Errorf("the RPC that was on its way ended as %+v", l)
	}

	before := a.Target()
	r.Update([]xdsresource.Locality{at("west", endpoint("a:1"), endpoint("c:1"))})
	if a.Target() != before {
		t.Error("an update without a change changes what RPCs are counted by")
	}
	r.Close()
	rpc(a) // of a picker that was just replaced
	want(t, "after the end", s, "west:1")
}

func TestWithoutReportsThereIsNoTarget(t *testing.T) {
	t.Parallel()
	var r *loads.Registry
	rpc(r.At("a:1"))
	r.Close()
	if r.Fits(nil, nil) {
		t.Error("a Registry that is not there fits")
	}
}

// An update of one endpoint among many allocates for that one only.
func TestUpdateCostsTheChange(t *testing.T) {
	s := load.NewStore(nil)
	r := loads.New(s.Use(load.Key{Cluster: "c"}), nil)
	l := at("east")
	for i := range 10_000 {
		l.Endpoints = append(l.Endpoints, endpoint(fmt.Sprintf("10.0.%d.%d:80", i/256, i%256)))
	}
	r.Update([]xdsresource.Locality{l})
	other := l
	other.Endpoints = slices.Clone(l.Endpoints)
	other.Endpoints[77] = endpoint("10.9.9.9:80")
	turn := 0
	if n := testing.AllocsPerRun(10, func() {
		r.Update([][]xdsresource.Locality{{l}, {other}}[turn%2])
		turn++
	}); n > 10 {
		t.Errorf("an update makes %v allocations", n)
	}
}
