package slowstart

import (
	"math/rand/v2"
	"sync/atomic"

	"google.golang.org/grpc/balancer"

	"github.com/dynxds/dynxds/internal/interleave"
)

// randomStart is where the picks of a client begin, so that clients that start together do not all begin
// with the same endpoint.
func randomStart() uint64 { return rand.Uint64() >> 1 }

// weights are those of a list of endpoints. They change while endpoints start.
type weights struct {
	atomic.Pointer[interleave.Weights]
}

// set sets the weights of at least one endpoint. Of 4 million or more they are equal, as the weights
// have to fit 32 bits together.
func (w *weights) set(endpoints []*endpoint) {
	if len(endpoints) == 0 {
		return
	}
	all := make([]uint32, len(endpoints))
	for i, e := range endpoints {
		all[i] = 1
		if len(endpoints) < 4_000_000 {
			all[i] = max(1, e.permille.Load())
		}
	}
	w.Store(interleave.New(all))
}

// roundRobin picks endpoints in turn, by their weights. An RPC that gets an endpoint that is not
// connected any more waits for the next picker.
type roundRobin struct {
	endpoints []*endpoint
	weights   *weights
	next      *atomic.Uint64
}

// Pick takes no lock and allocates nothing.
func (p *roundRobin) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	return p.endpoints[p.weights.Load().At(p.next.Add(1))].State().Picker.Pick(info)
}

// leastRequest picks, of some endpoints drawn at random, the one with fewest RPCs in flight for what it
// can take (gRFC A48; Envoy divides by the weight).
type leastRequest struct {
	endpoints []*endpoint
	choices   int
}

// Pick takes no lock and allocates nothing.
func (p *leastRequest) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	var best *endpoint
	var load, part uint64
	for range p.choices {
		e := p.endpoints[rand.IntN(len(p.endpoints))]
		l, w := uint64(max(e.inFlight.Load(), 0))+1, uint64(max(e.permille.Load(), 1))
		if best == nil || l*part < load*w {
			best, load, part = e, l, w
		}
	}
	result, err := best.State().Picker.Pick(info)
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
