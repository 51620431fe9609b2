package ringhash

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/dynxds/dynxds/internal/xdsresource"
)

func sizes(t table, endpoints int) []int {
	n := make([]int, endpoints)
	for _, e := range t {
		n[e]++
	}
	return n
}

// byRounds is the table by the definition of Envoy's algorithm: rounds over all endpoints, in each of
// which an endpoint has a turn unless it is ahead of its weight.
func byRounds(endpoints []xdsresource.Endpoint, size uint64) []uint32 {
	t, filled := slices.Repeat([]uint32{unused}, int(size)), 0
	taken, tried := make([]uint64, len(endpoints)), make([]uint64, len(endpoints))
	var greatest uint64
	for _, e := range endpoints {
		greatest = max(greatest, uint64(e.Weight))
	}
	for round := uint64(1); ; round++ {
		for _, i := range byKey(endpoints) {
			if round*uint64(endpoints[i].Weight) < taken[i]*greatest {
				continue
			}
			key := []byte(hashKey(endpoints[i]))
			seeded := xxhash.NewWithSeed(1)
			_, _ = seeded.Write(key)
			for {
				place := (xxhash.Sum64(key)%size + (seeded.Sum64()%(size-1)+1)*tried[i]) % size
				tried[i]++
				if t[place] == unused {
					t[place] = uint32(i)
					break
				}
			}
			taken[i]++
			if filled++; filled == int(size) {
				return t
			}
		}
	}
}

func TestTableIsEnvoys(t *testing.T) {
	t.Parallel()
	for _, weights := range [][]uint32{
		{1}, {7}, {1, 1, 1}, {1, 2, 5}, {3, 1, 4, 1, 5, 9, 2, 6}, {1000, 1, 999}, {1 << 31, 1<<31 - 1, 12345}, make([]uint32, 2000),
	} {
		for i, w := range weights {
			weights[i] = max(w, 1)
		}
		e := endpoints(weights...)
		e[0].HashKey = "stateful-0"
		for _, size := range []uint64{2, 7, 1009} {
			if got, want := newTable(e, size), byRounds(e, size); !slices.Equal(got, want) {
				t.Errorf("weights %v, size %d: the table is not that of the definition", weights[:min(8, len(weights))], size)
			}
		}
	}
}

// With 65537 entries every endpoint has its share, to within 1%.
func TestSharesOfTheTable(t *testing.T) {
	t.Parallel()
	equal := make([]uint32, 100)
	for i := range equal {
		equal[i] = 3
	}
	for name, weights := range map[string][]uint32{
		"equal": equal, "two": {1, 2}, "mixed": {100, 50, 25, 10, 75, 33, 12, 99}, "greatest": {math.MaxUint32, math.MaxUint32 / 3},
	} {
		var total float64
		for _, w := range weights {
			total += float64(w)
		}
		for i, n := range sizes(newTable(endpoints(weights...), 65537), len(weights)) {
			want := 65537 * float64(weights[i]) / total
			if math.Abs(float64(n)-want) > want/100 {
				t.Errorf("%s: endpoint %d has %d entries, want %.0f within 1%%", name, i, n, want)
			}
		}
	}
}

// Weights that differ by nine digits cost no more time than others.
func TestTableOfExtremeWeights(t *testing.T) {
	t.Parallel()
	weights := make([]uint32, 20000)
	for i := range weights {
		weights[i] = 1
	}
	weights[7] = math.MaxUint32
	n := sizes(newTable(endpoints(weights...), 65537), len(weights))
	if n[7] != 65537-19999 || slices.Min(n) != 1 {
		t.Errorf("the heaviest endpoint has %d entries, another one %d; want all but one for each other", n[7], slices.Min(n))
	}
}

func TestTableDoesNotDependOnTheOrder(t *testing.T) {
	t.Parallel()
	e := endpoints(3, 1, 4, 1, 5, 9)
	before := newTable(e, 1009)
	shuffled := slices.Clone(e)
	rand.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	after := newTable(shuffled, 1009)
	for i := range before {
		if a, b := e[before[i]].Address, shuffled[after[i]].Address; a != b {
			t.Fatalf("entry %d moved from %s to %s", i, a, b)
		}
	}
}

// If one of 100 endpoints is removed, its entries move, and of the others as few as in Maglev's
// paper ("Maglev: A Fast and Reliable Software Network Load Balancer", figure 12): well below 2%.
func TestFewEntriesOfOthersMove(t *testing.T) {
	t.Parallel()
	e := endpoints(slices.Repeat([]uint32{1}, 100)...)
	before := newTable(e, 65537)
	for _, removed := range []int{0, 50, 99} {
		rest := slices.Delete(slices.Clone(e), removed, removed+1)
		after := newTable(rest, 65537)
		moved := 0
		for i := range before {
			if was := e[before[i]].Address; int(before[i]) != removed && was != rest[after[i]].Address {
				moved++
			}
		}
		if moved > 65537/50 {
			t.Errorf("without endpoint %d, %d of 65537 entries moved although their endpoints stay", removed, moved)
		}
	}
}

// Whatever works is a candidate: every endpoint is tried for every hash, the one of the table first.
func TestEveryEndpointIsACandidate(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 3, 50, 2000} {
		p := lookup{newTable(endpoints(slices.Repeat([]uint32{1}, n)...), 1009), n}
		for range 20 {
			place := p.placeOf(rand.Uint64())
			seen := make(map[int]bool)
			for i := range p.tries() {
				seen[p.candidate(place, i)] = true
			}
			if len(seen) != n || p.candidate(place, 0) != int(p.table[place]) {
				t.Fatalf("%d of %d endpoints are candidates, %d first, want %d", len(seen), n, p.candidate(place, 0), p.table[place])
			}
		}
	}
}

func BenchmarkNewTable(b *testing.B) {
	for _, n := range []int{1, 100, 10000} {
		e := endpoints(slices.Repeat([]uint32{1}, n)...)
		b.Run(fmt.Sprint("endpoints=", n), func(b *testing.B) {
			for b.Loop() {
				newTable(e, 65537)
			}
		})
	}
}
