package soak

import (
	"testing"
	"time"
)

// Silences of clients that do not hear of absence end in time, with a pause for the answers before the next.
func TestSilencesEndInTime(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		p := newPlan(seed)
		if p.mayBeSilent() {
			continue
		}
		answered, in := time.Duration(0), -1
		for _, e := range p.events {
			if e.round != in {
				answered, in = 0, e.round
			}
			if !silencing[e.op.name] {
				continue
			}
			if e.lasts > longestSilence || e.at < answered {
				t.Errorf("seed %d: %v", seed, e)
			}
			answered = e.at + e.lasts + answering
		}
	}
}
