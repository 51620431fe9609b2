package random

import (
	"math/rand/v2"
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/internal/draw"
)

// group has the endpoints in one state. Pickers read it while the loop changes it, so that a change of one
// endpoint costs nothing for the others: an RPC may get an endpoint that has just left, and waits for the next picker.
type group struct {
	state connectivity.State
	// places has the endpoints in its first n elements, and behind these some that have left.
	places []atomic.Pointer[endpoint]
	n      atomic.Int32
	// weights are those of the endpoints while some of them start; nil: all are alike.
	weights atomic.Pointer[draw.Weights]
}

// newGroup returns a group for n endpoints.
func newGroup(s connectivity.State, n int) *group {
	return &group{state: s, places: make([]atomic.Pointer[endpoint], n)}
}

func (g *group) size() int { return int(g.n.Load()) }

func (g *group) add(e *endpoint) {
	e.group, e.place = g, g.size()
	g.places[e.place].Store(e)
	g.n.Add(1)
}

// remove moves the last endpoint to the place of e.
func (g *group) remove(e *endpoint) {
	last := g.places[g.n.Add(-1)].Load()
	last.place = e.place
	g.places[e.place].Store(last)
	e.group = nil
}

// any returns an endpoint, all with the same probability. There has been one.
func (g *group) any() *endpoint { return g.places[rand.IntN(max(1, g.size()))].Load() }

// Pick draws an endpoint by weight. It takes no lock and allocates nothing.
func (g *group) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	if w := g.weights.Load(); w != nil {
		return g.pick(g.places[w.Pick()].Load(), info)
	}
	return g.pick(g.any(), info)
}

// pick picks an endpoint, unless its state has just changed: a failing one must not end the RPC.
func (g *group) pick(e *endpoint, info balancer.PickInfo) (balancer.PickResult, error) {
	if s := e.State(); s.ConnectivityState == g.state {
		return s.Picker.Pick(info)
	}
	return balancer.PickResult{}, balancer.ErrNoSubConnAvailable
}

// leastRequest picks, of some endpoints drawn at random, the one with fewest RPCs in flight for what it
// can take (gRFC A48; Envoy divides by the weight).
type leastRequest struct {
	*group
	choices int
}

// Pick takes no lock and allocates nothing.
func (p leastRequest) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	var best *endpoint
	var load, part uint64
	for range p.choices {
		e := p.any()
		l, w := uint64(max(e.inFlight.Load(), 0))+1, uint64(max(e.permille.Load(), 1))
		if best == nil || l*part < load*w {
			best, load, part = e, l, w
		}
	}
	result, err := p.pick(best, info)
	if err != nil {
		return result, err
	}
	best.inFlight.Add(1)
	if done := result.Done; done != nil {
		result.Done = func(info balancer.DoneInfo) { done(info); best.done(info) }
	} else {
		result.Done = best.done
	}
	return result, nil
}
