package ringhash

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

func endpoints(weights ...uint32) []xdsresource.Endpoint {
	var all []xdsresource.Endpoint
	for i, w := range weights {
		all = append(all, xdsresource.Endpoint{Address: fmt.Sprintf("10.0.0.%d:80", i), Weight: w})
	}
	return all
}

func config(least, most uint64) xdsresource.RingHash {
	return xdsresource.RingHash{MinRingSize: least, MaxRingSize: most}
}

func counts(r ring, n int) []int {
	c := make([]int, n)
	for _, e := range r {
		c[e.endpoint]++
	}
	return c
}

// gRFC A42, "Ring Hash LB Policy": entries in proportion to the weights, of a
// size that gives the least endpoint a whole number, within bounds.
func TestSizeOfTheRing(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		weights []uint32
		config  xdsresource.RingHash
		want    []int
	}{
		{"equal weights", []uint32{1, 1, 1, 1}, config(8, 4096), []int{2, 2, 2, 2}},
		{"rounded up to a whole number each", []uint32{1, 1, 1}, config(10, 4096), []int{4, 4, 4}},
		{"by weight", []uint32{1, 2, 5}, config(8, 4096), []int{1, 2, 5}},
		{"the greatest size wins", []uint32{1, 1, 1, 1}, config(1024, 8), []int{2, 2, 2, 2}},
		{"one endpoint", []uint32{7}, config(3, 4096), []int{3}},
		{"fewer entries than endpoints", []uint32{1, 1, 1, 1}, config(1, 2), []int{1, 0, 1, 0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := counts(newRing(endpoints(tc.weights...), tc.config), len(tc.weights))
			xdstest.Equal(t, "entries", tc.want, got)
		})
	}
}

// The places are those of Envoy and of gRPC in other languages.
func TestPlacesOnTheRing(t *testing.T) {
	t.Parallel()
	e := endpoints(1, 1)
	e[1].HashKey = "stateful-1" // gRFC A76
	r := newRing(e, config(4, 4096))
	want := []entry{
		{xxhash.Sum64String("10.0.0.0:80_0"), 0}, {xxhash.Sum64String("10.0.0.0:80_1"), 0},
		{xxhash.Sum64String("stateful-1_0"), 1}, {xxhash.Sum64String("stateful-1_1"), 1},
	}
	if len(r) != len(want) {
		t.Fatalf("%d entries, want %d", len(r), len(want))
	}
	for _, w := range want {
		if i := r.placeOf(w.hash); r[i] != w {
			t.Errorf("hash %d leads to %v, want %v", w.hash, r[i], w)
		}
		if i := r.placeOf(w.hash - 1); r[i] != w {
			t.Errorf("the hash before %d leads to %v, want %v", w.hash, r[i], w)
		}
	}
	if last := r[len(r)-1].hash; r.placeOf(last+1) != 0 {
		t.Error("what is behind the last entry does not go to the first")
	}
}

func TestRingDoesNotDependOnTheOrder(t *testing.T) {
	t.Parallel()
	e := endpoints(3, 1, 4, 1, 5, 9)
	before := newRing(e, config(1024, 4096))
	owner := func(r ring, e []xdsresource.Endpoint, h uint64) string { return e[r[r.placeOf(h)].endpoint].Address }
	shuffled := slices.Clone(e)
	rand.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	after := newRing(shuffled, config(1024, 4096))
	for range 1000 {
		if h := rand.Uint64(); owner(before, e, h) != owner(after, shuffled, h) {
			t.Fatalf("hash %d moved", h)
		}
	}
}

// If one of 100 endpoints is removed, its hashes move, about 1/100, and no others.
func TestOnlyHashesOfTheRemovedEndpointMove(t *testing.T) {
	t.Parallel()
	const n, hashes = 100, 20000
	weights := make([]uint32, n)
	for i := range weights {
		weights[i] = 1
	}
	e := endpoints(weights...)
	c := config(1024, 4096)
	before, after := newRing(e, c), newRing(e[1:], c)
	moved := 0
	for range hashes {
		h := rand.Uint64()
		was := before[before.placeOf(h)].endpoint
		if now := after[after.placeOf(h)].endpoint + 1; was != now {
			moved++
			if was != 0 {
				t.Fatalf("hash %d moved from endpoint %d to %d although both stay", h, was, now)
			}
		}
	}
	var share float64 // of the ring that the endpoint had
	for i, r := range before {
		if r.endpoint == 0 {
			share += float64(r.hash-before[(i+len(before)-1)%len(before)].hash) / (1 << 63) / 2
		}
	}
	xdstest.CheckShares(t, "moved, stayed", []int{moved, hashes - moved}, share, 1-share)
}

func BenchmarkNewRing(b *testing.B) {
	e := endpoints(make([]uint32, 100)...)
	for i := range e {
		e[i].Weight = 1
	}
	for b.Loop() {
		newRing(e, config(1024, 4096))
	}
}
