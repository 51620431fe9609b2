package router

import (
	"sync"

	"github.com/dynxds/dynxds/internal/xdsresource"
)

// throttle stops hedges while too many attempts fail (gRFC A6, "Throttling Retry Attempts and
// Hedged RPCs"). A nil throttle stops nothing.
type throttle struct {
	max, ratio float64

	mu     sync.Mutex
	tokens float64 // from 0 to max
}

func newThrottle(config *xdsresource.RetryThrottling) *throttle {
	if config == nil {
		return nil
	}
	return &throttle{max: config.MaxTokens, ratio: config.TokenRatio, tokens: config.MaxTokens}
}

// permits reports whether a hedge may be sent.
func (t *throttle) permits() bool {
	if t == nil {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.tokens > t.max/2
}

func (t *throttle) failed()    { t.add(-1) }
func (t *throttle) succeeded() { t.add(1) }

// add counts a failure if sign is -1, or else a success.
func (t *throttle) add(sign int) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if sign < 0 {
		t.tokens = max(t.tokens-1, 0)
	} else {
		t.tokens = min(t.tokens+t.ratio, t.max)
	}
}
