package slowstart

import (
	"math/rand/v2"
	"sync/atomic"

	"google.golang.org/grpc/balancer"

	"github.com/dynxds/dynxds/internal/draw"
)

// weights are those of a list of endpoints. They change while endpoints start.
type weights struct {
	atomic.Pointer[draw.Weights]
}

// set sets the weights of at least one endpoint.
func (w *weights) set(endpoints []*endpoint) {
	if len(endpoints) == 0 {
		return
	}
	all := make([]uint32, len(endpoints))
	for i, e := range endpoints {
		all[i] = max(1, e.permille.Load())
	}
	w.Store(draw.New(all))
}

// byWeight draws an endpoint for each pick, by the weights. An RPC that gets an endpoint that is not
// connected any more waits for the next picker.
type byWeight struct {
	endpoints []*endpoint
	weights   *weights
}

// Pick takes no lock and allocates nothing.
func (p *byWeight) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	return p.endpoints[p.weights.Load().Pick()].State().Picker.Pick(info)
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
