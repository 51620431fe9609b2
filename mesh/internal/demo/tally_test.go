package demo

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// judged returns the verdict on a step with an even split of two backends by the configuration "new", after 2500 RPCs that began one
// after the other.
func judged(answer func(draw *rand.Rand, r *rpc)) string {
	draw := rand.New(rand.NewPCG(1, 2))
	t := new(tally)
	t.excuse("10.0.0.1:80")
	t.begin([]group{{nil, "new", map[string]float64{stable1: 0.5, canary1: 0.5}}})
	for range 2500 {
		r := rpc{of: emptyCall, start: time.Now()}
		answer(draw, &r)
		t.record(r)
	}
	_, reasons := t.verdict()
	return strings.Join(reasons, "; ")
}

// splitBy answers by stable-1 with the given probability, else by canary-1.
func splitBy(configuration string, p float64) func(*rand.Rand, *rpc) {
	return func(draw *rand.Rand, r *rpc) {
		r.configuration, r.backend = configuration, canary1
		if draw.Float64() < p {
			r.backend = stable1
		}
	}
}

// failing has every hundredth RPC fail, on a connection to an address.
func failing(peer string) func(*rand.Rand, *rpc) {
	return func(draw *rand.Rand, r *rpc) {
		splitBy("new", 0.5)(draw, r)
		if draw.IntN(100) == 0 {
			r.err, r.peer = errors.New("broken"), peer
		}
	}
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	long := time.Now().Add(-time.Hour)
	for _, tt := range []struct {
		name   string
		answer func(*rand.Rand, *rpc)
		want   string // empty: the step was observed
	}{
		{"the right split", splitBy("new", 0.5), ""},
		{"the change never shows", splitBy("old", 0.5), "0 of all RPCs show the change, and 100 have to"},
		{"a backend never answers", splitBy("new", 1), "0 of all RPCs show the change, and 100 have to"},
		{"the shares are off", splitBy("new", 0.75), "% of all RPCs, expected 50 ±"},
		{"RPCs fail", failing("10.0.0.2:80"), " RPCs failed, the first EmptyCall: broken"},
		{"RPCs fail that had to fail", failing("10.0.0.1:80"), ""},
		{"an old configuration comes back", func(draw *rand.Rand, r *rpc) {
			splitBy([]string{"old", "new"}[draw.IntN(2)], 0.5)(draw, r)
		}, " RPCs went by another configuration"},
		{"too few RPCs", func(draw *rand.Rand, r *rpc) {
			if splitBy("new", 0.5)(draw, r); draw.IntN(100) > 0 {
				r.start = long
			}
		}, " of all RPCs show the change, and 100 have to"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := judged(tt.answer); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("the reasons are %q, want %q", got, tt.want)
			}
		})
	}
}

// RPCs with a split of their own are judged apart, and the change has arrived when all groups show it.
func TestGroups(t *testing.T) {
	t.Parallel()
	tl := new(tally)
	tl.begin([]group{
		{[]string{alice}, direct, map[string]float64{stable1: 1}},
		{[]string{bob}, viaProxy, map[string]float64{proxy1: 1}},
	})
	record := func(of, configuration, backend string) {
		tl.record(rpc{of: of, configuration: configuration, backend: backend, start: time.Now()})
	}
	for range 2 {
		record(bob, viaProxy, proxy1)
		record(alice, viaProxy, proxy1)
	}
	if !tl.arrived.IsZero() {
		t.Error("the change has arrived before it shows")
	}
	record(alice, direct, stable1)
	for range minRPCs {
		if tl.enough() {
			t.Error("there are enough RPCs before there are", minRPCs)
		}
		record(bob, viaProxy, proxy1)
		record(alice, direct, stable1)
	}
	if !tl.enough() {
		t.Error("there are not enough RPCs")
	}
	table, reasons := tl.verdict()
	xdstest.Equal(t, "reasons", nil, reasons)
	xdstest.Equal(t, "table", strings.TrimPrefix(`
  RPCs                       backend      share   expected
  alice                      stable-1    100.0%   100%
  bob                        proxy-1     100.0%   100%
`, "\n"), table.String())
}

// The tolerance is what independent draws keep to, and no more than that: the right split stays within it, one that
// is off by twice as much does not.
func TestToleranceSeparatesRightFromWrong(t *testing.T) {
	t.Parallel()
	draw := rand.New(rand.NewPCG(3, 4))
	wrong := func(expected, p float64, n int) bool {
		tl := &tally{groups: []group{{shares: map[string]float64{stable1: expected, canary1: 1 - expected}}}, counted: []map[string]int{{}}}
		for range n {
			var r rpc
			splitBy("", p)(draw, &r)
			tl.counted[0][r.backend]++
		}
		_, reasons := tl.verdict()
		return len(reasons) > 0
	}
	for _, p := range []float64{0, 0.1, 0.5, 0.9, 1} {
		for _, n := range []int{100, 1000, 10000} {
			for range 20 {
				if wrong(p, p, n) {
					t.Errorf("p = %v, n = %d: the right split is wrong", p, n)
				}
			}
			if other := p + max(2*tolerance(p, n), 0.05); other < 1 && !wrong(p, other, n) {
				t.Errorf("p = %v, n = %d: drawn with %v, and nothing is wrong", p, n, other)
			}
		}
	}
}
