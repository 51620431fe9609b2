package cluster

import (
	"fmt"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// priorities is a resource's localities by priority, by their zones.
type priorities [][]string

func (p priorities) endpoints() *xdsresource.Endpoints {
	e := &xdsresource.Endpoints{}
	for i, zones := range p {
		for _, z := range zones {
			e.Localities = append(e.Localities, xdsresource.Locality{
				ID: xdsresource.LocalityID{Zone: z}, Priority: uint32(i), Weight: 1,
				Endpoints: []xdsresource.Endpoint{{Address: z + ":1", Weight: 1}},
			})
		}
	}
	return e
}

// gRFC A56, "LB Policy Configuration": names move with the localities.
func TestNamesFollowTheLocalities(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		updates []priorities
		want    [][]string
	}{
		{"the same", []priorities{{{"a"}, {"b"}}, {{"a"}, {"b"}}}, [][]string{{"1", "2"}, {"1", "2"}}},
		{"one moves up", []priorities{{{"a"}, {"b"}}, {{"b"}, {"c"}}}, [][]string{{"1", "2"}, {"2", "3"}}},
		{"two change places", []priorities{{{"a"}, {"b"}}, {{"b"}, {"a"}}}, [][]string{{"1", "2"}, {"2", "1"}}},
		{"one is split", []priorities{{{"a", "b"}}, {{"a"}, {"b"}}}, [][]string{{"1"}, {"1", "2"}}},
		{"two are merged", []priorities{{{"a"}, {"b"}}, {{"a", "b"}}}, [][]string{{"1", "2"}, {"1"}}},
		{"all are new", []priorities{{{"a"}}, {{"b"}}}, [][]string{{"1"}, {"2"}}},
		{"one locality in two priorities", []priorities{{{"a"}, {"a", "b"}}, {{"a"}, {"a", "b"}}},
			[][]string{{"1", "2"}, {"1", "2"}}},
		{"one goes and returns", []priorities{{{"a"}, {"b"}}, {{"b"}}, {{"b"}}, {{"a"}, {"b"}}}, [][]string{{"1", "2"}, {"2"}, {"2"}, {"3", "2"}}},
		{"two priorities of one locality", []priorities{{{"a"}, {"a"}}, {{"a"}, {"a"}}}, [][]string{{"1", "2"}, {"1", "2"}}},
	} {
		xdstest.Parallel(t, tc.name, func(t *testing.T) {
			var n names
			var got [][]string
			for _, u := range tc.updates {
				var given []string
				for _, e := range n.entries(&xdsresource.Cluster{}, u.endpoints()) {
					given = append(given, e.Name)
				}
				got = append(got, given)
			}
			xdstest.Equal(t, "names", tc.want, got)
		})
	}
}

func TestEntriesKeepTheOrderWithinAPriority(t *testing.T) {
	t.Parallel()
	var n names
	e := priorities{{"a", "c"}, {"b", "d"}}.endpoints()
	e.Localities[1], e.Localities[2] = e.Localities[2], e.Localities[1]
	before := fmt.Sprint(e)
	var got [][]string
	for _, entry := range n.entries(new(xdsresource.Cluster), e) {
		var zones []string
		for _, l := range entry.Config.Localities {
			zones = append(zones, l.ID.Zone)
		}
		got = append(got, zones)
	}
	xdstest.Equal(t, "localities", [][]string{{"a", "c"}, {"b", "d"}}, got)
	if fmt.Sprint(e) != before {
		t.Error("the resource was changed")
	}
}

// gRFC A52, "Locality Weights": a policy that is not wrapped in WrrLocality
// picks among all endpoints of the priority.
func TestAPolicyAcrossLocalitiesGetsAllEndpointsOfThePriority(t *testing.T) {
	t.Parallel()
	var n names
	entries := n.entries(&xdsresource.Cluster{LBPolicy: "round_robin", AcrossLocalities: true}, priorities{{"a", "b"}, {"c"}}.endpoints())
	var got [][]string
	for _, e := range entries {
		if len(e.Config.Localities) != 1 || e.Config.Localities[0].Weight != 1 {
			t.Fatalf("localities %+v, want one of weight 1", e.Config.Localities)
		}
		var addresses []string
		for _, endpoint := range e.Config.Localities[0].Endpoints {
			addresses = append(addresses, endpoint.Address)
		}
		got = append(got, addresses)
	}
	xdstest.Equal(t, "addresses by priority", [][]string{{"a:1", "b:1"}, {"c:1"}}, got)
}

// gRFC A113: a locality's share is that of its weight, however many endpoints it has. Endpoints that get no RPCs do not
// count.
func TestWeightsAcrossLocalities(t *testing.T) {
	t.Parallel()
	const one = 1 << 31
	type locality struct {
		weight    uint32
		endpoints []uint32
	}
	for _, tc := range []struct {
		name       string
		localities []locality
		unusable   int // so many of the first locality's endpoints, from its first
		want       []uint32
	}{
		{"three endpoints and one", []locality{{3, []uint32{1, 1, 1}}, {1, []uint32{1}}}, 0, []uint32{one / 4, one / 4, one / 4, one / 4}},
		{"the example of gRFC A42", []locality{{3, []uint32{2, 1}}, {2, []uint32{3, 1}}}, 0, []uint32{one / 5 * 2, one / 5, one / 10 * 3, one / 10}},
		{"one of four can be used", []locality{{1, []uint32{1, 1, 1, 1}}, {1, []uint32{1}}}, 3, []uint32{1, 1, 1, one / 2, one / 2}},
		{"none can be used", []locality{{1, []uint32{7}}, {1, []uint32{1}}}, 1, []uint32{7, one / 2}},
		{"great ones", []locality{{1 << 31, []uint32{1 << 30, 1 << 30}}, {1<<31 - 1, []uint32{1<<32 - 1}}}, 0, []uint32{one / 4, one / 4, one / 2}},
		{"one far below the other", []locality{{1, []uint32{1}}, {1<<32 - 2, []uint32{1<<32 - 1}}}, 0, []uint32{1, one}},
	} {
		xdstest.Parallel(t, tc.name, func(t *testing.T) {
			var given []xdsresource.Locality
			for _, l := range tc.localities {
				at := xdsresource.Locality{Weight: l.weight}
				for i, w := range l.endpoints {
					e := xdsresource.Endpoint{Weight: w}
					if len(given) == 0 && i < tc.unusable {
						e.Health = xdsresource.HealthStatus(corepb.HealthStatus_UNHEALTHY)
					}
					at.Endpoints = append(at.Endpoints, e)
				}
				given = append(given, at)
			}
			before := fmt.Sprint(given)
			var got []uint32
			for _, e := range merged(given)[0].Endpoints {
				got = append(got, e.Weight)
			}
			for i := range got {
				if off := int64(got[i]) - int64(tc.want[i]); len(got) != len(tc.want) || off < -4 || off > 4 {
					t.Fatalf("weights %v, want %v", got, tc.want)
				}
			}
			if fmt.Sprint(given) != before {
				t.Error("the resource was changed")
			}
		})
	}
}

// A policy that connects to every endpoint should not have more than bounds.ManyEndpoints.
func TestTooManyEndpoints(t *testing.T) {
	t.Parallel()
	most := make([]xdsresource.Endpoint, bounds.ManyEndpoints)
	for i := range most {
		most[i] = xdsresource.Endpoint{Address: fmt.Sprint("backend:", i), Weight: 1}
	}
	few := most[:1]
	in := func(p uint32, zone string, all []xdsresource.Endpoint) xdsresource.Locality {
		return xdsresource.Locality{ID: xdsresource.LocalityID{Zone: zone}, Priority: p, Weight: 1, Endpoints: all}
	}
	for _, tc := range []struct {
		name       string
		cluster    xdsresource.Cluster
		localities []xdsresource.Locality
		want       int
	}{
		{"as many as may be", xdsresource.Cluster{LBPolicy: "round_robin"}, []xdsresource.Locality{in(0, "a", most)}, 0},
		{"one more", xdsresource.Cluster{LBPolicy: "round_robin"}, []xdsresource.Locality{in(0, "a", most), in(0, "b", few)}, bounds.ManyEndpoints + 1},
		{"one more, of another priority", xdsresource.Cluster{LBPolicy: "round_robin"}, []xdsresource.Locality{in(0, "a", most), in(1, "b", few)}, 0},
		{"ring hash", xdsresource.Cluster{LBPolicy: xdsresource.PolicyRingHash}, []xdsresource.Locality{in(0, "a", most), in(0, "b", few)}, 0},
		{"a subset", xdsresource.Cluster{LBPolicy: "round_robin", Subsets: xdsresource.Subsets{OfPriority: 20}},
			[]xdsresource.Locality{in(0, "a", most), in(0, "b", few)}, 0},
	} {
		xdstest.Parallel(t, tc.name, func(t *testing.T) {
			var n names
			entries := n.entries(&tc.cluster, &xdsresource.Endpoints{Localities: tc.localities})
			xdstest.Equal(t, "too many", tc.want, tooMany(tc.cluster.LBPolicy, entries))
		})
	}
}
