package ringhash

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"strconv"

	"github.com/cespare/xxhash/v2"

	"github.com/dynxds/dynxds/internal/xdsresource"
)

// ring is a ketama ring: each endpoint has entries in proportion to its weight, at the hashes
// of "key_0", "key_1" and so on. It is immutable, and the same for the same endpoints in any
// order, in any process, and in gRPC of any language.
//
// When an endpoint is removed, its hashes go to other endpoints. The other hashes stay where
// they are, as long as the other endpoints keep their numbers of entries.
type ring []entry

// entry maps the hashes up to hash to an endpoint, by its index.
type entry struct {
	hash     uint64
	endpoint int
}

// newRing returns the ring of at least one endpoint. Its size gives the endpoint of least
// weight a whole number of entries, within the bounds of c (gRFC A42).
func newRing(endpoints []xdsresource.Endpoint, c xdsresource.RingHash) ring {
	var total, least float64
	for i := range endpoints {
		w := float64(endpoints[i].Weight)
		total += w
		if least == 0 || w < least {
			least = w
		}
	}
	least /= total
	size := min(math.Ceil(least*float64(c.MinRingSize))/least, float64(c.MaxRingSize))
	r := make(ring, 0, int(math.Ceil(size)))
	var target float64
	for _, i := range byKey(endpoints) {
		target += size * float64(endpoints[i].Weight) / total
		prefix := append([]byte(hashKey(endpoints[i])), '_')
		for n := 0; float64(len(r)) < target; n++ {
			r = append(r, entry{hash: xxhash.Sum64(strconv.AppendInt(prefix, int64(n), 10)), endpoint: i})
		}
	}
	slices.SortStableFunc(r, func(a, b entry) int { return cmp.Compare(a.hash, b.hash) })
	return r
}

// hashKey is what places an endpoint on the ring (gRFC A76).
func hashKey(e xdsresource.Endpoint) string { return cmp.Or(e.HashKey, e.Address) }

// byKey returns the indexes of the endpoints in the order of their keys.
func byKey(endpoints []xdsresource.Endpoint) []int {
	order := make([]int, len(endpoints))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(hashKey(endpoints[a]), hashKey(endpoints[b]))
	})
	return order
}

func (r ring) tries() int { return len(r) }

func (r ring) candidate(place, i int) int { return r[(place+i)%len(r)].endpoint }

// placeOf returns the index of the entry for a hash.
func (r ring) placeOf(hash uint64) int {
	return sort.Search(len(r), func(i int) bool { return r[i].hash >= hash }) % len(r)
}
