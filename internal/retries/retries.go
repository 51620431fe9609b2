// Package retries says how long to wait after failures, as all clients here do. RPCs have delays of their own
// (configselector/internal/router).
package retries

import (
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
