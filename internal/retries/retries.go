// Package retries waits: it says how long after failures, as all clients here do, and does so. RPCs that are retried have delays of
// their own (configselector/internal/router).
package retries

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/backoff"
)

// After returns how long to wait after a failure that follows the given number of others in a row (grpc,
// doc/connection-backoff.md): longer each time, up to a limit, and at random a bit more or less.
func After(failures int, c backoff.Config) time.Duration {
	delay := math.Min(float64(c.BaseDelay)*math.Pow(c.Multiplier, float64(failures)), float64(c.MaxDelay))
	return time.Duration(delay * (1 + c.Jitter*(2*rand.Float64()-1)))
}

// Wait waits until the time is over, or returns the context's error if that ends before. A time that is over already needs no timer:
// of those, only one goroutine of a synctest bubble may make one at a time under the race detector (golang/go#78156).
func Wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
