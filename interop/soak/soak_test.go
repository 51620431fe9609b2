package soak

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"go.uber.org/goleak"
)

var (
	duration = flag.Duration("duration", 5*time.Second, "how long the soak lasts")
	seed     = flag.Uint64("seed", 0, "the seed of the operations; 0 for a random one")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSoak keeps clients under constant load, unary and streaming, while everything
// around them misbehaves. The package's description has the invariants.
func TestSoak(t *testing.T) {
	for *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("seed %d, for %v", *seed, *duration)
	Run(t, *seed, *duration)
}
