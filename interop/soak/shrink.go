package soak

import (
	"slices"
	"time"
)

// shrink returns the smallest plan that it finds which still fails: without any one of its events, its clients or its
// disk caches it does not. It is delta debugging: halves of the events are left out, then quarters, and so on.
func shrink(p plan, fails func(plan) bool) plan {
	with := func(events []event) plan {
		smaller := p
		smaller.events = events
		return smaller
	}
	for parts := 2; len(p.events) > 0; {
		size := (len(p.events) + parts - 1) / parts
		smaller := false
		for from := 0; from < len(p.events); from += size {
			rest := slices.Concat(p.events[:from], p.events[min(from+size, len(p.events)):])
			if fails(with(rest)) {
				p, smaller = with(rest), true
				break
			}
		}
		switch {
		case smaller:
			parts = max(2, parts-1)
		case size == 1:
			return shrinkRest(p, fails)
		default:
			parts = min(2*parts, len(p.events))
		}
	}
	return shrinkRest(p, fails)
}

// shrinkRest leaves out clients, disk caches and quiet.
func shrinkRest(p plan, fails func(plan) bool) plan {
	for _, i := range p.clients {
		smaller := p
		smaller.clients = slices.DeleteFunc(slices.Clone(p.clients), func(other int) bool { return other == i })
		// Operations on DPDS draw a client that uses it.
		if slices.ContainsFunc(smaller.clients, func(i int) bool { return clients[i].dpds != noDPDS }) && fails(smaller) {
			p = smaller
		}
	}
	smaller := p
	smaller.cached = nil
	if len(p.cached) > 0 && fails(smaller) {
		p = smaller
	}
	smaller = p
	smaller.rounds = slices.Clone(p.rounds)
	for i := range smaller.rounds {
		smaller.rounds[i].quiet = time.Second
	}
	if fails(smaller) {
		p = smaller
	}
	return p
}
