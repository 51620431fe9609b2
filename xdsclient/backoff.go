package xdsclient

import (
	"math"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/backoff"
)

// retries counts the attempts in a row that brought nothing, and says how long
// to wait after each (grpc, doc/connection-backoff.md).
type retries struct {
	config backoff.Config
	failed int
}

// next returns how long after the start of the last attempt the next one may
// start.
func (r *retries) next() time.Duration {
	c := r.config
	delay := math.Min(float64(c.BaseDelay)*math.Pow(c.Multiplier, float64(r.failed)), float64(c.MaxDelay))
	r.failed++
	return time.Duration(delay * (1 + c.Jitter*(2*rand.Float64()-1)))
}

// reset forgets the failures.
func (r *retries) reset() { r.failed = 0 }
