package random

import (
	"math/rand/v2"
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/balancer/internal/perendpoint"
	"github.com/dynxds/dynxds/internal/draw"
)

// group has the endpoints that are READY. Pickers read it while the loop changes it, so that a change of one
// endpoint costs nothing for the others: an RPC may get an endpoint that has just left, and waits for the next picker.
type group struct {
	// places has the endpoints in its first n elements, and behind these some that have left.
	places []atomic.Pointer[endpoint]
	n      atomic.Int32
	// weights are those of the endpoints while some of them start; nil: all are alike.
	weights atomic.Pointer[draw.Weights]
}

func (g *group) size() int { return int(g.n.Load()) }

func (g *group) add(e *endpoint) {
	e.place = g.size()
	g.places[e.place].Store(e)
	g.n.Add(1)
}

// remove moves the last endpoint to the place of e.
func (g *group) remove(e *endpoint) {
	last := g.places[g.n.Add(-1)].Load()
	last.place = e.place
	g.places[e.place].Store(last)
	e.place = nowhere
}

// any returns an endpoint, all with the same probability. There has been one.
func (g *group) any() *endpoint { return g.places[rand.IntN(max(1, g.size()))].Load() }

// Pick draws an endpoint by weight. It takes no lock and allocates nothing.
func (g *group) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	if w := g.weights.Load(); w != nil {
		return pick(g.places[w.Pick()].Load().Member, connectivity.Ready, info)
	}
	return pick(g.any().Member, connectivity.Ready, info)
}

// pick picks an endpoint, unless its state has just changed: a failing one must not end the RPC.
func pick(m *perendpoint.Member, in connectivity.State, info balancer.PickInfo) (balancer.PickResult, error) {
	if s := m.State(); s.ConnectivityState == in {
		return s.Picker.Pick(info)
	}
	return balancer.PickResult{}, balancer.ErrNoSubConnAvailable
}

// failing are endpoints of which none can be reached.
type failing []*perendpoint.Member

// Pick returns the error of one of the endpoints.
func (f failing) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	return pick(f[rand.IntN(len(f))], connectivity.TransientFailure, info)
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
	result, err := pick(best.Member, connectivity.Ready, info)
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
