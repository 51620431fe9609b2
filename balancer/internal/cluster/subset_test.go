package cluster

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// zone is a locality of n endpoints.
func zone(n int) []xdsresource.Locality {
	l := xdsresource.Locality{ID: xdsresource.LocalityID{Zone: "z"}}
	for i := range n {
		l.Endpoints = append(l.Endpoints, xdsresource.Endpoint{Address: fmt.Sprintf("10.0.0.%d:80", i)})
	}
	return []xdsresource.Locality{l}
}

func addresses(localities []xdsresource.Locality) []string {
	var all []string
	for _, l := range localities {
		for _, e := range l.Endpoints {
			all = append(all, e.Address)
		}
	}
	return all
}

// gRFC A68, "Uniform connection distribution on high scale": over clients with seeds of their own each
// endpoint is in as many subsets, and as often the first.
func TestSubsetsAreUniform(t *testing.T) {
	t.Parallel()
	const clients, n, size = 20000, 10, 3
	in, first := map[string]int{}, map[string]int{}
	for range clients {
		got := addresses(subset(zone(n), size, rand.Uint64()))
		if len(got) != size {
			t.Fatalf("a subset is %v, want %d endpoints", got, size)
		}
		first[got[0]]++
		for _, a := range got {
			in[a]++
		}
	}
	var counts [2][]int
	var weights []float64
	for _, a := range addresses(zone(n)) {
		counts[0], counts[1], weights = append(counts[0], in[a]), append(counts[1], first[a]), append(weights, 1)
	}
	xdstest.CheckShares(t, "in subsets", counts[0], weights...)
	xdstest.CheckShares(t, "first", counts[1], weights...)
}

// gRFC A68, "Low connection churn during server rollouts".
func TestSubsetChangesByOneEndpoint(t *testing.T) {
	t.Parallel()
	for range 200 {
		all, seed := zone(20), rand.Uint64()
		before := addresses(subset(all, 5, seed))
		removed := rand.IntN(20)
		was := all[0].Endpoints[removed].Address
		all[0].Endpoints = slices.Delete(all[0].Endpoints, removed, removed+1)
		rand.Shuffle(19, func(i, j int) { e := all[0].Endpoints; e[i], e[j] = e[j], e[i] })
		after := addresses(subset(all, 5, seed))
		if !slices.Contains(before, was) {
			if !slices.Equal(before, after) {
				t.Fatalf("without %s the subset %v is %v", was, before, after)
			}
			continue
		}
		kept := slices.DeleteFunc(slices.Clone(before), func(a string) bool { return a == was })
		if len(after) != 5 || !slices.Equal(kept, after[:4]) {
			t.Fatalf("without %s the subset %v is %v", was, before, after)
		}
	}
}

// Endpoints that get no RPCs take no place in the subset (gRFC A27), and it is of all localities together.
func TestSubsetOfUsableEndpoints(t *testing.T) {
	t.Parallel()
	l := append(zone(8), zone(4)...)
	for i := range l[1].Endpoints {
		l[1].Endpoints[i].Address = fmt.Sprintf("10.0.1.%d:80", i)
	}
	for i := range 6 {
		l[0].Endpoints[i].Health = xdsresource.HealthUnhealthy
	}
	given := fmt.Sprint(l)
	for seed := range uint64(50) {
		got := subset(l, 5, seed)
		if all := addresses(got); len(got) != 2 || len(all) != 5 || slices.ContainsFunc(got[0].Endpoints, func(e xdsresource.Endpoint) bool { return !e.Health.Usable() }) {
			t.Fatalf("the subset is %v", got)
		}
		if got := subset(l, 6, seed); fmt.Sprint(got) != given {
			t.Fatalf("of 6 usable endpoints, 6 are %v", got)
		}
	}
	if fmt.Sprint(l) != given {
		t.Error("the resource has changed")
	}
}
