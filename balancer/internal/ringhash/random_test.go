package ringhash_test

import (
	"context"
	"testing"

	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// noPolicy is an RPC of a route whose hash policies give no hash.
type noPolicy struct{}

func (noPolicy) Origin() (context.Context, string, string) { return context.Background(), "", "" }

func (noPolicy) Hash() (uint64, bool) { return 0, false }

// TestRandomHashes: an RPC without a hash goes to a random place on the ring (gRFC
// A42, "Hash Function"), also where each RPC is made in the memory of an earlier one.
func TestRandomHashes(t *testing.T) {
	t.Parallel()
	for name, extra := range map[string]func() *decision.Extra{
		"the route has no policy":     func() *decision.Extra { return nil },
		"no policy of the route fits": func() *decision.Extra { return &decision.Extra{RPC: noPolicy{}} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const rpcs = 240_000
			seen := make(map[uint64]bool, rpcs)
			places, weights := make([]int, 64), make([]float64, 64)
			for i := range weights {
				weights[i] = 1
			}
			for range rpcs {
				hash := (&decision.Decision{Context: context.Background(), Extra: extra()}).Hash()
				seen[hash] = true
				places[hash>>58]++
			}
			// That two of 240,000 random numbers of 64 bits are the same has a
			// probability of 2e-9.
			xdstest.Equal(t, "distinct hashes", rpcs, len(seen))
			xdstest.CheckShares(t, "places on the ring", places, weights...)
		})
	}
}
