package soak

import (
	"testing"
	"time"
)

// Silences that follow each other closely are one, which ends in time.
func TestSilencesEndInTime(t *testing.T) {
	t.Parallel()
	var s silent
	for _, step := range []struct{ at, lasts, want time.Duration }{
		{0, time.Minute, 10},
		{3, 2, 2},
		{8, 9, 2},
		{13, 1, -3},
		{15, 4, 4},
		{22, 9, 3},
		{30, 9, 9},
	} {
		if got := s.add(step.at*time.Second, step.lasts*time.Second); got != step.want*time.Second {
			t.Errorf("a silence at %d s may last for %v, want %d s", step.at, got, step.want)
		}
	}
}
