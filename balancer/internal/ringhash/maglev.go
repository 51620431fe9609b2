package ringhash

import (
	"cmp"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/dynxds/dynxds/internal/xdsresource"
)

// table is Maglev's look-up table (Envoy's Maglev): it maps a hash, modulo its length, to an
// endpoint by its index. Endpoints have entries in proportion to their weights. It is immutable, and the
// same for the same endpoints in any order, in any process, and in Envoy.
//
// When an endpoint is removed, its entries go to other endpoints, and few other entries move.
type table []uint32

const unused = ^uint32(0)

// newTable returns the table of at least one endpoint. size is a prime number, so that each endpoint's
// preferences, an arithmetic sequence, lead to every entry.
//
// Endpoints take turns, in the order of their keys in each round. In its turn an endpoint takes the entry that it prefers among those
// left. One of the greatest weight has a turn in each round, one of a third of that in each third.
func newTable(endpoints []xdsresource.Endpoint, size uint64) table {
	t := make(table, size)
	for i := range t {
		t[i] = unused
	}
	turns := turnsOf(endpoints, size) // of this round
	greatest := slices.MaxFunc(turns, func(a, b *turn) int { return cmp.Compare(a.weight, b.weight) }).weight
	later := make(map[uint64][]*turn) // of the rounds after the next
	for round, left := uint64(1), size; ; round++ {
		if due := later[round]; due != nil {
			delete(later, round)
			turns = append(turns, due...)
			slices.SortFunc(turns, func(a, b *turn) int { return cmp.Compare(a.order, b.order) })
		}
		again := turns[:0] // in the next round
		for _, e := range turns {
			for t[e.next] != unused {
				e.next = (e.next + e.skip) % size
			}
			t[e.next] = uint32(e.endpoint)
			if left--; left == 0 {
				return t
			}
			e.taken++
			// In the first round in which the rounds times its weight make up for its entries times the greatest weight.
			if next := (e.taken*greatest + e.weight - 1) / e.weight; next > round+1 {
				later[next] = append(later[next], e)
			} else {
				again = append(again, e)
			}
		}
		turns = again
	}
}

// turn is an endpoint that takes entries.
type turn struct {
	order, endpoint int // indexes: by the keys, and as given
	weight, taken   uint64
	// next is the next entry that it prefers, and skip how far away the one after that is.
	next, skip uint64
}

func turnsOf(endpoints []xdsresource.Endpoint, size uint64) []*turn {
	turns := make([]*turn, len(endpoints))
	seeded := xxhash.NewWithSeed(1)
	for order, i := range byKey(endpoints) {
		key := hashKey(endpoints[i])
		seeded.ResetWithSeed(1)
		_, _ = seeded.WriteString(key) // It has no errors.
		turns[order] = &turn{
			order: order, endpoint: i, weight: uint64(max(endpoints[i].Weight, 1)),
			next: xxhash.Sum64String(key) % size, skip: seeded.Sum64()%(size-1) + 1,
		}
	}
	return turns
}

// lookup is a table with the number of its endpoints.
type lookup struct {
	table
	endpoints int
}

func (l lookup) placeOf(hash uint64) int { return int(hash % uint64(len(l.table))) }

func (l lookup) tries() int { return 2 * l.endpoints }

// candidate: a table has many more entries for each endpoint than a ring. After as many candidates as there are endpoints,
// among which is one that works unless most endpoints do not, the candidates are all endpoints in their order.
func (l lookup) candidate(place, i int) int {
	if i < l.endpoints {
		return int(l.table[(place+i)%len(l.table)])
	}
	return (int(l.table[place]) + i) % l.endpoints
}
