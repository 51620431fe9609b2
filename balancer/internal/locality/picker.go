package locality

import (
	"sync/atomic"

	"google.golang.org/grpc/balancer"

	"github.com/dynxds/dynxds/internal/interleave"
)

// share is one locality's picker and its weight.
type share struct {
	weight uint32
	picker balancer.Picker
}

// picker interleaves the picks of the shares by weight.
type picker struct {
	next    *atomic.Uint64
	weights *interleave.Weights
	pickers []balancer.Picker
}

// newPicker returns a picker over at least one share. next counts the picks.
func newPicker(shares []share, next *atomic.Uint64) balancer.Picker {
	if len(shares) == 1 {
		return shares[0].picker
	}
	weights, pickers := make([]uint32, len(shares)), make([]balancer.Picker, len(shares))
	for i, s := range shares {
		weights[i], pickers[i] = s.weight, s.picker
	}
	// The weights of a priority fit 32 bits together: the decoder has seen to it.
	return &picker{next: next, weights: interleave.New(weights), pickers: pickers}
}

// Pick takes no lock and allocates nothing.
func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	return p.pickers[p.weights.At(p.next.Add(1))].Pick(info)
}
