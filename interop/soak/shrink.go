package soak

import (
	"slices"
	"time"
)

// shrink returns the smallest plan that it finds which still fails: without any one of its events, its clients or its
// disk caches it does not. It is delta debugging: halves of the events are left out, then quarters, and so on.
func shrink(p plan, fails func(plan) bool) plan {
	try := func(change func(*plan)) bool {
		smaller := p
		smaller.clients, smaller.rounds = slices.Clone(p.clients), slices.Clone(p.rounds)
		change(&smaller)
		if !fails(smaller) {
			return false
		}
		p = smaller
		return true
	}
	for size := (len(p.events) + 1) / 2; size > 0; {
		smaller := false
		for from := 0; from < len(p.events); {
			rest := slices.Concat(p.events[:from], p.events[min(from+size, len(p.events)):])
			if try(func(p *plan) { p.events = rest }) {
				smaller = true
				continue
			}
			from += size
		}
		if size > 1 || !smaller {
			size /= 2
		}
	}
	for i := len(p.clients) - 1; i >= 0; i-- {
		rest := slices.Delete(slices.Clone(p.clients), i, i+1)
		// Operations on DPDS draw a client that uses it.
		if len(laned(rest)) > 0 {
			try(func(p *plan) { p.clients = rest })
		}
	}
	for i, c := range p.clients {
		if c.cached {
			try(func(p *plan) { p.clients[i].cached = false })
		}
	}
	try(func(p *plan) {
		for i := range p.rounds {
			p.rounds[i].quiet = time.Second
		}
	})
	return p
}
