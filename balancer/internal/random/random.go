// Package random picks any connected endpoint, all with the same probability (Envoy's RANDOM).
// It ignores weights.
//
// It works on the tree's loop and keeps all endpoints connected.
package random

import (
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/balancer/internal/perendpoint"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// Policy picks at random. A change of one endpoint costs next to nothing for the others.
type Policy struct {
	changed func()
	set     *perendpoint.Set
	// ready and failed have the endpoints in these states.
	ready, failed group
	state         balancer.State
}

// group has the endpoints in one state, and their places in picker.
type group struct {
	of     connectivity.State
	places map[*perendpoint.Member]int
	picker picker
}

func newGroup(of connectivity.State) group {
	return group{of: of, places: make(map[*perendpoint.Member]int)}
}

// New returns a Policy without endpoints, which fails RPCs until Update.
func New(env *tree.Env, changed func()) *Policy {
	p := &Policy{changed: changed, state: tree.Failing(perendpoint.ErrEmpty)}
	p.ready, p.failed = newGroup(connectivity.Ready), newGroup(connectivity.TransientFailure)
	p.set = perendpoint.New(env, p.memberChanged)
	return p
}

// Update sets the endpoints. There is no configuration.
func (p *Policy) Update(endpoints []xdsresource.Endpoint, _ string) {
	p.set.Update(endpoints)
	for _, g := range []*group{&p.ready, &p.failed} {
		for m := range g.places {
			if m.Index() < 0 {
				g.remove(m)
			}
		}
	}
	for _, m := range p.set.Members() {
		p.sort(m)
	}
	p.refresh()
}

func (p *Policy) State() balancer.State { return p.state }

// ExitIdle implements tree.Policy. No endpoint stays idle.
func (p *Policy) ExitIdle() {}

func (p *Policy) Close() { p.set.Close() }

func (p *Policy) memberChanged(m *perendpoint.Member) {
	p.sort(m)
	p.refresh()
	p.changed()
}

// sort moves an endpoint to the group of its state, and connects it if it is idle.
func (p *Policy) sort(m *perendpoint.Member) {
	if m.Index() < 0 {
		return
	}
	if m.State().ConnectivityState == connectivity.Idle {
		m.Connect()
	}
	p.ready.sort(m)
	p.failed.sort(m)
}

// refresh computes the state from those of the endpoints.
func (p *Policy) refresh() {
	switch members := len(p.set.Members()); {
	case members == 0:
		p.state = tree.Failing(perendpoint.ErrEmpty)
	case p.ready.picker.n > 0:
		p.state = balancer.State{ConnectivityState: connectivity.Ready, Picker: p.ready.picker}
	case p.failed.picker.n == members:
		p.state = balancer.State{ConnectivityState: connectivity.TransientFailure, Picker: p.failed.picker}
	default:
		p.state = tree.Waiting(connectivity.Connecting)
	}
}

func (g *group) sort(m *perendpoint.Member) {
	if m.State().ConnectivityState != g.of {
		g.remove(m)
	} else if _, in := g.places[m]; !in {
		g.places[m] = g.picker.n
		g.picker = g.picker.with(g.picker.n, m)
	}
}

// remove moves the last entry to the place of m, if m is in g.
func (g *group) remove(m *perendpoint.Member) {
	place, in := g.places[m]
	if !in {
		return
	}
	if last := g.picker.n - 1; place != last {
		moved := g.picker.at(last)
		g.places[moved] = place
		g.picker = g.picker.with(place, moved)
	}
	delete(g.places, m)
	g.picker = g.picker.shortened()
}
