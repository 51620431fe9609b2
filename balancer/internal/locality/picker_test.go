package locality

import (
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/balancer"
)

// counter is a picker that counts its picks.
type counter struct{ picks atomic.Int64 }

func (c *counter) Pick(balancer.PickInfo) (balancer.PickResult, error) {
	c.picks.Add(1)
	return balancer.PickResult{}, nil
}

// gRFC A27, "EDS LB Policy": RPCs go to localities by weight. The shares are those of package
// interleave, also of concurrent picks.
func TestSharesAreExactUnderConcurrentPicks(t *testing.T) {
	t.Parallel()
	var a, b, c counter
	p := newPicker([]share{{70, &a}, {20, &b}, {10, &c}}, new(atomic.Uint64))
	var pickers sync.WaitGroup
	for range 10 {
		pickers.Go(func() {
			for range 1000 {
				p.Pick(balancer.PickInfo{})
			}
		})
	}
	pickers.Wait()
	if a, b, c := a.picks.Load(), b.picks.Load(), c.picks.Load(); a != 7000 || b != 2000 || c != 1000 {
		t.Errorf("the localities got %d, %d and %d of 10000 picks, want 7000, 2000 and 1000", a, b, c)
	}
}
