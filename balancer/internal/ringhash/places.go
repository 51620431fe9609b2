package ringhash

import "github.com/dynxds/dynxds/internal/xdsresource"

// places map hashes to endpoints: by a ring, or by a table if there is one. The zero value has none.
type places struct {
	ring  ring
	table table
	// tries is how many candidates there are for a hash: at least one for each endpoint that has a
	// place.
	tries, endpoints int
}

// onRing and onTable place at least one endpoint.
func onRing(endpoints []xdsresource.Endpoint, c xdsresource.RingHash) places {
	r := newRing(endpoints, c)
	return places{ring: r, tries: len(r), endpoints: len(endpoints)}
}

func onTable(endpoints []xdsresource.Endpoint, size uint64) places {
	t := newTable(endpoints, size)
	return places{table: t, tries: 2 * len(endpoints), endpoints: len(endpoints)}
}

func (p *places) empty() bool { return p.tries == 0 }

// placeOf returns the place of a hash.
func (p *places) placeOf(hash uint64) int {
	if p.table != nil {
		return int(hash % uint64(len(p.table)))
	}
	return p.ring.indexOf(hash)
}

// candidate returns the i-th endpoint to try for the hash at a place; i is less than tries.
//
// On a ring, they are those of the entries from there on. A table has many more entries for each
// endpoint: after as many of them as there are endpoints, which find one that works unless most
// do not, they are all endpoints in their order.
func (p *places) candidate(place, i int) int {
	switch {
	case p.table == nil:
		return p.ring[(place+i)%len(p.ring)].endpoint
	case i < p.endpoints:
		return int(p.table[(place+i)%len(p.table)])
	default:
		return (int(p.table[place]) + i) % p.endpoints
	}
}
