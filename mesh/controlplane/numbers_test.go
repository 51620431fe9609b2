package controlplane

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// Numbers are as a set of them, also of those that are removed and added at once.
func TestNumbersChange(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	var set numbers
	want := map[uint32]bool{}
	for range 300 {
		var removed, added []uint32
		for number := range want {
			if rng.IntN(4) == 0 {
				removed = append(removed, number)
			}
		}
		for _, number := range removed {
			delete(want, number)
		}
		for range rng.IntN(100) {
			if number := 1000 + rng.Uint32N(400); !want[number] {
				want[number] = true
				added = append(added, number)
			}
		}
		set = set.change(removed, added)
		checkNumbers(t, &set, want)
	}
}

// The same for numbers that are inserted and removed one by one; long lists shrink again.
func TestNumbers(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	var n numbers
	want := map[uint32]bool{}
	for range 3_000 {
		number := 1000 + rng.Uint32N(1_000)
		if _, in := want[number]; n.insert(number) == in {
			t.Fatalf("insert(%d) = %t, want %t", number, in, !in)
		}
		want[number] = true
		if number = 1000 + rng.Uint32N(1_000); rng.IntN(2) == 0 {
			if n.remove(number) != want[number] {
				t.Fatalf("remove(%d) = %t, want %t", number, !want[number], want[number])
			}
			delete(want, number)
		}
		checkNumbers(t, &n, want)
	}
	for number := range want {
		n.remove(number)
	}
	if len(n) != 0 || cap(n) > 64 {
		t.Errorf("%d numbers are left, in a list with room for %d", len(n), cap(n))
	}
}

func checkNumbers(t *testing.T, n *numbers, want map[uint32]bool) {
	t.Helper()
	var got []uint32
	for i, number := range *n {
		if at, found := n.find(number); at != i || !found {
			t.Fatalf("%d is found at %d, %t, want %d", number, at, found, i)
		}
		got = append(got, number)
	}
	if sorted := slices.Sorted(maps.Keys(want)); !slices.Equal(got, sorted) || len(*n) != len(want) {
		t.Fatalf("got %v, want %v", got, sorted)
	}
}
