package retries

import (
	"math"
	"testing"
	"time"

	"google.golang.org/grpc/backoff"
)

// grpc, doc/connection-backoff.md: ±20 % of 1 s × 1.6ⁿ, at most 120 s.
func TestAfter(t *testing.T) {
	t.Parallel()
	varied := false
	for n := range 40 {
		want := math.Min(math.Pow(1.6, float64(n)), 120)
		got := After(n, backoff.DefaultConfig).Seconds()
		if got < want*0.8-1e-6 || got > want*1.2+1e-6 {
			t.Errorf("wait %d is %v s, want %v s ±20 %%", n, got, want)
		}
		varied = varied || math.Abs(got-want) > want*0.01
	}
	if !varied {
		t.Error("no wait differs from the middle")
	}
	if d := After(math.MaxInt, backoff.DefaultConfig); d > 144*time.Second || d < 96*time.Second {
		t.Errorf("after very many failures: %v", d)
	}
}
