package random

import (
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/balancer/internal/perendpoint"
)

// The picker always has the members of the group, and older pickers do not change.
func TestPickerHasTheMembersOfTheGroup(t *testing.T) {
	t.Parallel()
	g := newGroup(connectivity.Ready)
	members := make([]*perendpoint.Member, 5*blockSize)
	for i := range members {
		members[i] = new(perendpoint.Member)
	}
	in := map[*perendpoint.Member]bool{}
	check := func(p picker, want map[*perendpoint.Member]bool) {
		t.Helper()
		got := map[*perendpoint.Member]bool{}
		for i := range p.n {
			got[p.at(i)] = true
		}
		if p.n != len(want) || len(got) != len(want) {
			t.Fatalf("the picker has %d entries, %d different ones, want %d", p.n, len(got), len(want))
		}
		for m := range want {
			if !got[m] {
				t.Fatal("the picker lacks an endpoint of the group")
			}
		}
	}
	add := func(m *perendpoint.Member) {
		g.places[m] = g.picker.n
		g.picker = g.picker.with(g.picker.n, m)
		in[m] = true
	}
	for range 20 {
		old, was := g.picker, map[*perendpoint.Member]bool{}
		for m := range in {
			was[m] = true
		}
		for _, m := range members {
			switch {
			case in[m] && rand.IntN(2) == 0:
				g.remove(m)
				delete(in, m)
			case !in[m] && rand.IntN(2) == 0:
				add(m)
			}
		}
		check(g.picker, in)
		check(old, was)
	}
	for _, m := range slices.Clone(members) {
		g.remove(m)
		delete(in, m)
	}
	check(g.picker, in)
	if len(g.picker.blocks) != 0 {
		t.Errorf("an empty picker has %d blocks", len(g.picker.blocks))
	}
}
