package ringhash

import (
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
// Endpoints take turns. In its turn an endpoint takes the entry that it prefers among those left.
// One of the greatest weight has a turn in each round, one of a third of that in each third.
func newTable(endpoints []xdsresource.Endpoint, size uint64) table {
	t := make(table, size)
	for i := range t {
		t[i] = unused
	}
	q := newTurns(endpoints, size)
	for range t {
		e := &q.heap[0]
		for t[e.next] != unused {
			e.next = (e.next + e.skip) % size
		}
		t[e.next] = uint32(e.endpoint)
		q.advance()
	}
	return t
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

// turns has the next turn of each endpoint.
type turns struct {
	greatest uint64 // weight
	heap     []turn // the next one is the first
}

type turn struct {
	round uint64
	order int // of endpoints that have a turn in the same round
	// endpoint is an index; taken is the number of its entries.
	endpoint      int
	weight, taken uint64
	// next is the next entry that it prefers, and skip how far away the one after that is.
	next, skip uint64
}

func newTurns(endpoints []xdsresource.Endpoint, size uint64) *turns {
	q := &turns{greatest: 1}
	seeded := xxhash.NewWithSeed(1)
	for order, i := range byKey(endpoints) {
		key := hashKey(endpoints[i])
		seeded.ResetWithSeed(1)
		_, _ = seeded.WriteString(key) // It has no errors.
		weight := uint64(max(endpoints[i].Weight, 1))
		q.greatest = max(q.greatest, weight)
		// In this order it is a heap.
		q.heap = append(q.heap, turn{
			round: 1, order: order, endpoint: i, weight: weight,
			next: xxhash.Sum64String(key) % size, skip: seeded.Sum64()%(size-1) + 1,
		})
	}
	return q
}

// advance ends the first turn, and has the endpoint wait for its next one: the first round in which
// the rounds times its weight make up for its entries times the greatest weight.
func (q *turns) advance() {
	e := &q.heap[0]
	e.taken++
	e.round = max(e.round+1, (e.taken*q.greatest+e.weight-1)/e.weight)
	for i := 0; ; {
		first := i
		for _, child := range [...]int{2*i + 1, 2*i + 2} {
			if child < len(q.heap) && q.before(child, first) {
				first = child
			}
		}
		if first == i {
			return
		}
		q.heap[i], q.heap[first] = q.heap[first], q.heap[i]
		i = first
	}
}

func (q *turns) before(i, j int) bool {
	a, b := &q.heap[i], &q.heap[j]
	return a.round < b.round || a.round == b.round && a.order < b.order
}
