package localratelimit

import (
	"sync/atomic"
	"time"
)

// limits are the parameters of a token bucket.
type limits struct {
	max, perFill uint32
	interval     time.Duration
}

// bucket is a token bucket that takes no lock. It begins full and is filled at
// fixed times, not little by little, as in Envoy.
type bucket struct {
	limits
	start time.Time
	// state holds the number of the last fill, counted from start, in the upper
	// half, and the tokens since then in the lower.
	state atomic.Uint64
}

func newBucket(l limits) *bucket {
	b := &bucket{limits: l, start: time.Now()}
	b.state.Store(uint64(l.max))
	return b
}

// takeToken takes a token and reports whether there was one.
func (b *bucket) takeToken() bool {
	fill := uint32(time.Since(b.start) / b.interval)
	for {
		old := b.state.Load()
		last, tokens := uint32(old>>32), uint32(old)
		if fill > last {
			added := uint64(fill-last) * uint64(b.perFill)
			tokens = uint32(min(uint64(b.max), uint64(tokens)+added))
		}
		if tokens == 0 {
			return false
		}
		if b.state.CompareAndSwap(old, uint64(max(fill, last))<<32|uint64(tokens-1)) {
			return true
		}
	}
}
