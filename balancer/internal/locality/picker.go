package locality

import (
	"sync/atomic"

	"google.golang.org/grpc/balancer"
)

// share is one locality's picker and its weight.
type share struct {
	weight uint32
	picker balancer.Picker
}

// picker gives each share exactly its part: of any total consecutive picks, where total is the
// sum of the weights in lowest terms, each share gets as many as its weight. Random numbers do
// not do that, and a table would need an entry for each unit of weight.
//
// It lays the weights end to end on a circle of circumference total, and walks the circle in
// steps whose length is coprime to total. Such a walk visits each place once before it repeats.
// A step near the golden section of the circle spreads the visits of each share evenly over the
// walk.
type picker struct {
	next        *atomic.Uint64
	total, step uint64
	arcs        []arc
}

// arc is the part of the circle from the end of the previous arc up to end.
type arc struct {
	end    uint64
	picker balancer.Picker
}

// newPicker returns a picker over at least one share. next counts the picks.
func newPicker(shares []share, next *atomic.Uint64) balancer.Picker {
	if len(shares) == 1 {
		return shares[0].picker
	}
	var divisor uint64
	for _, s := range shares {
		divisor = gcd(uint64(s.weight), divisor)
	}
	p := &picker{next: next, arcs: make([]arc, len(shares))}
	for i, s := range shares {
		p.total += uint64(s.weight) / divisor
		p.arcs[i] = arc{end: p.total, picker: s.picker}
	}
	p.step = stride(p.total)
	return p
}

// Pick takes no lock and allocates nothing.
func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	// The weights of a priority fit 32 bits together, so the product fits 64.
	place := p.next.Add(1) % p.total * p.step % p.total
	low, high := 0, len(p.arcs)-1
	for low < high {
		middle := (low + high) / 2
		if place < p.arcs[middle].end {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return p.arcs[low].picker.Pick(info)
}

// stride returns the first number from the golden section of total on that is coprime to total.
func stride(total uint64) uint64 {
	const goldenSection = 0.6180339887498949
	step := max(1, uint64(float64(total)*goldenSection))
	for gcd(step, total) != 1 {
		step++
	}
	return step
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
