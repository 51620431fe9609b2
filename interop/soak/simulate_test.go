package soak

import (
	"flag"
	"strings"
	"testing"
	"time"
)

var (
	first = flag.Uint64("first", 1, "the first seed of the simulations")
	seeds = flag.Int("seeds", 8, "the number of simulations")
)

// TestSimulations runs the mesh on virtual time, by seeds.
func TestSimulations(t *testing.T) {
	for i := range uint64(*seeds) {
		p := newPlan(*first + i)
		begin := time.Now()
		res := simulate(t, p)
		t.Logf("seed %d: %v in %v, %d RPCs, %d excused, %d events, settling %v", p.seed, res.lasted.Round(time.Second), time.Since(begin).Round(time.Millisecond), res.rpcs, res.excused, len(p.events), res.settling)
		if len(res.faults) > 0 {
			t.Errorf("%v\n%s\n\n%s", p, strings.Join(res.faults, "\n"), strings.Join(res.log, "\n"))
		}
	}
}
