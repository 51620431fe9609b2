package demo

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// lettered has the backends a and b.
func lettered(methods ...string) *setUp {
	return &setUp{Backends: []backendInfo{{Name: "a"}, {Name: "b"}}, Methods: methods}
}

// count fills counts: method, backend, number.
func count(s *setUp, cells map[[2]string]int) counts {
	c := s.counts()
	for cell, n := range cells {
		c.n[cell[1]][cell[0]] = n
	}
	return c
}

func TestCountsOfAndShare(t *testing.T) {
	t.Parallel()
	c := count(lettered("X", "Y"), map[[2]string]int{{"X", "a"}: 1, {"X", "b"}: 3, {"Y", "a"}: 4})
	tests := []struct {
		backend string
		methods []string
		of      int
		share   float64
		percent string
	}{
		{"", nil, 8, 1, "100.0%"},
		{"a", nil, 5, 0.625, "62.5%"},
		{"a", []string{"X"}, 1, 0.25, "25.0%"},
		{"b", []string{"X", "Y"}, 3, 0.375, "37.5%"},
		{"c", nil, 0, 0, "0.0%"},
		{"a", []string{"Z"}, 0, 0, "-"},
	}
	for _, tt := range tests {
		if got := c.of(tt.backend, tt.methods...); got != tt.of {
			t.Errorf("of(%q, %v) = %d, want %d", tt.backend, tt.methods, got, tt.of)
		}
		if got := c.share(tt.backend, tt.methods...); got != tt.share {
			t.Errorf("share(%q, %v) = %v, want %v", tt.backend, tt.methods, got, tt.share)
		}
		if got := c.percent(tt.backend, tt.methods...); got != tt.percent {
			t.Errorf("percent(%q, %v) = %q, want %q", tt.backend, tt.methods, got, tt.percent)
		}
	}
}

// The tolerance is what independent draws keep to, and no more than that: the
// right split stays within it, one that is off by twice as much does not.
func TestToleranceSeparatesRightFromWrong(t *testing.T) {
	t.Parallel()
	draw := rand.New(rand.NewPCG(3, 4))
	share := func(p float64, n int) float64 {
		hits := 0
		for range n {
			if draw.Float64() < p {
				hits++
			}
		}
		return float64(hits) / float64(n)
	}
	for _, p := range []float64{0.1, 0.5, 0.9} {
		for _, n := range []int{100, 1000, 10000} {
			allowed := tolerance(p, n)
			for range 100 {
				if got := share(p, n); math.Abs(got-p) > allowed {
					t.Errorf("p = %v, n = %d: drew %v, outside ±%v", p, n, got, allowed)
				}
			}
			if wrong := p + 2*allowed; wrong < 1 {
				if got := share(wrong, n); math.Abs(got-p) <= allowed {
					t.Errorf("p = %v, n = %d: %v, drawn with %v, is within ±%v", p, n, got, wrong, allowed)
				}
			}
		}
	}
}

// A backend that is to answer nothing, or everything, has no tolerance.
func TestCheckIsExactWithoutChance(t *testing.T) {
	t.Parallel()
	expect := expectation{groups: []group{{methods: []string{"X"}, shares: map[string]float64{"a": 1}}}}
	checks := expect.checks(count(lettered("X", "Y"), map[[2]string]int{{"X", "a"}: 999, {"X", "b"}: 1, {"Y", "b"}: 5}))
	want := []check{
		{Methods: []string{"X"}, Backend: "a", Expected: 1, Share: 0.999, RPCs: 1000},
		{Methods: []string{"X"}, Backend: "b", Expected: 0, Share: 0.001, RPCs: 1000},
	}
	xdstest.Equal(t, "checks", want, checks)
}

func TestLatencyQuantiles(t *testing.T) {
	t.Parallel()
	var l latencies
	if got := l.quantile(0.5); got != 0 {
		t.Errorf("median of nothing = %v, want 0", got)
	}
	for i := 1; i <= 1000; i++ {
		l.add(time.Duration(i) * time.Millisecond)
	}
	for q, want := range map[float64]time.Duration{0.5: 500 * time.Millisecond, 0.99: 990 * time.Millisecond, 1: time.Second} {
		if got := time.Duration(l.quantile(q)); got < want || float64(got) > float64(want)*latencyGrowth {
			t.Errorf("quantile %v = %v, want %v to 5%% more", q, got, want)
		}
	}
	for _, d := range []time.Duration{-time.Second, 0, time.Nanosecond, math.MaxInt64} {
		l.add(d)
	}
	if l.n != 1004 {
		t.Errorf("%d durations were counted, want 1004", l.n)
	}
}
