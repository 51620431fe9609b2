package soak

import (
	"slices"
	"testing"
	"time"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// The same seed gives the same plan, and another seed another one.
func TestSameSeedSamePlan(t *testing.T) {
	t.Parallel()
	if one, again := newPlan(1), newPlan(1); one.String() != again.String() {
		t.Error("the same seed gives another plan")
	}
	if newPlan(1).String() == newPlan(2).String() {
		t.Error("another seed gives the same plan")
	}
}

// A plan shrinks to the events, clients and caches that its failure needs.
func TestShrink(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		p := newPlan(seed)
		if len(p.events) == 0 {
			continue // all that was drawn would last for too long
		}
		// It fails with the last event, and one in the middle.
		needed := []event{p.events[len(p.events)/2], p.events[len(p.events)-1]}
		needed = slices.Compact(needed)
		tries := 0
		small := shrink(p, func(p plan) bool {
			tries++
			for _, e := range needed {
				if !slices.Contains(p.events, e) {
					return false
				}
			}
			return true
		})
		xdstest.Equal(t, "the names of the events", opNames(needed), opNames(small.events))
		if len(small.clients) != 1 || small.clients[0].cached {
			t.Errorf("seed %d: clients %v are left", seed, small.clients)
		}
		if tries > 400 {
			t.Errorf("seed %d: %d events took %d tries", seed, len(p.events), tries)
		}
	}
}

func opNames(events []event) (names []string) {
	for _, e := range events {
		names = append(names, e.op.name)
	}
	return names
}

// sabotage stops all backends, and nobody knows.
var sabotage = op{"all backends stop unnoticed", 0, func(r *run) bool {
	for _, b := range r.backends {
		b.Stop()
	}
	r.later(func() {
		for _, b := range r.backends {
			r.must(b.Restart())
		}
	})
	return true
}}

// A violation of the invariants is found, and shrunk to the event that causes it.
func TestSimulationFindsAFault(t *testing.T) {
	at := func(second time.Duration, op *op) event {
		return event{at: second * time.Second, op: op, lasts: 5 * time.Second}
	}
	planted := at(20, &sabotage)
	p := plan{clients: []client{clients[0], clients[5]}, rounds: []round{{quiet: time.Minute}}, events: []event{
		at(10, honest("latencies change")), at(15, honest("routes change")), planted, at(30, honest("endpoints change")), at(40, honest("certificates are renewed")),
	}}
	small := shrink(p, func(p plan) bool { return len(failing(t, p, 3).faults) > 0 })
	if !slices.Equal(small.events, []event{planted}) {
		t.Errorf("it was shrunk to %v", small)
	}
}
