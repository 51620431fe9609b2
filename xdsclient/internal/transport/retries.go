package transport

import (
	"math"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/backoff"
)

// Retries counts consecutive failed attempts, and says how long to wait after each (grpc,
// doc/connection-backoff.md).
type Retries struct {
	Config backoff.Config
	Failed int
}

// Next counts a failure, and returns how long after the start of the failed attempt the next
// one may start.
func (r *Retries) Next() time.Duration {
	c := r.Config
	delay := math.Min(float64(c.BaseDelay)*math.Pow(c.Multiplier, float64(r.Failed)), float64(c.MaxDelay))
	r.Failed++
	return time.Duration(delay * (1 + c.Jitter*(2*rand.Float64()-1)))
}

// Reset forgets the failures.
func (r *Retries) Reset() { r.Failed = 0 }
