package demo

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// judged returns a tally that has judged a step, with an even split of two backends by the configuration "new", by 2500 RPCs, one a
// millisecond.
func judged(answer func(draw *rand.Rand, r *rpc)) *tally {
	draw := rand.New(rand.NewPCG(1, 2))
	t := new(tally)
	t.excuse("10.0.0.1:80")
	t.begin([]group{{nil, "new", map[string]float64{stable1: 0.5, canary1: 0.5}}})
	t.made()
	for i := range 2500 {
		start := t.changed.Add(time.Duration(i) * time.Millisecond)
		r := rpc{method: emptyCall, start: start, end: start.Add(time.Millisecond / 2)}
		answer(draw, &r)
		t.record(r)
	}
	return t
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

func TestFaults(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		answer func(*rand.Rand, *rpc)
		want   string // empty: there is no fault
	}{
		{"the right split", splitBy("new", 0.5), ""},
		{"the change never shows", splitBy("old", 0.5), "no RPC has shown the change within "},
		{"a backend never answers", splitBy("new", 1), "since the first RPC that shows the change none was answered by canary-1"},
		{"the shares are off", splitBy("new", 0.75), "% of all RPCs, expected 50.0% ±"},
		{"RPCs fail", failing("10.0.0.2:80"), " RPCs failed, the first: EmptyCall: broken"},
		{"RPCs fail that had to fail", failing("10.0.0.1:80"), ""},
		{"an old configuration comes back", func(draw *rand.Rand, r *rpc) {
			splitBy([]string{"old", "new"}[draw.IntN(2)], 0.5)(draw, r)
		}, ` by another one, the first EmptyCall by "old"`},
		{"too few RPCs", func(draw *rand.Rand, r *rpc) {
			splitBy("new", 0.5)(draw, r)
			r.method = []string{emptyCall, unaryCall}[min(1, draw.IntN(1000))]
			if r.method == unaryCall {
				r.start = time.Time{} // before the change
			}
		}, "too few RPCs were answered to judge the shares"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := strings.Join(judged(tt.answer).faults(), "; ")
			if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("the faults are %q, want %q", got, tt.want)
			}
		})
	}
}

// RPCs of methods with a split of their own are judged apart, and only those of the first group show the change.
func TestGroups(t *testing.T) {
	t.Parallel()
	tl := new(tally)
	ready := tl.begin([]group{
		{[]string{alice}, direct, map[string]float64{stable1: 1}},
		{[]string{bob}, viaProxy, map[string]float64{proxy1: 1}},
	})
	tl.made()
	at := tl.changed
	record := func(method, configuration, backend string) {
		at = at.Add(time.Millisecond)
		tl.record(rpc{method: method, configuration: configuration, backend: backend, start: at, end: at})
	}
	record(bob, viaProxy, proxy1)
	record(alice, viaProxy, proxy1)
	if !tl.shown.IsZero() {
		t.Error("the change is shown by RPCs that it did not affect")
	}
	for range minRPCs + 2 {
		record(alice, direct, stable1)
		record(bob, viaProxy, proxy1)
	}
	<-ready
	xdstest.Equal(t, "faults", nil, tl.faults())
	xdstest.Equal(t, "table", strings.TrimPrefix(`
backend    cluster   UnaryCall  EmptyCall  FullDuplexCall    alice      bob      all
stable-1   stable            -          -               -   100.0%     0.0%    50.0%  ##########
stable-2   stable            -          -               -     0.0%     0.0%     0.0%
canary-1   canary            -          -               -     0.0%     0.0%     0.0%
proxy-1    proxy             -          -               -     0.0%   100.0%    50.0%  ##########
RPCs                         0          0               0      101      101      202
`, "\n"), table(tl.counted).String())
}

// The tolerance is what independent draws keep to, and no more than that: the right split stays within it, one that
// is off by twice as much does not.
func TestToleranceSeparatesRightFromWrong(t *testing.T) {
	t.Parallel()
	draw := rand.New(rand.NewPCG(3, 4))
	counted := func(p float64, n int) counts {
		c := counts{}
		for range n {
			r := rpc{method: emptyCall}
			splitBy("", p)(draw, &r)
			c[[2]string{r.backend, r.method}]++
		}
		return c
	}
	for _, p := range []float64{0, 0.1, 0.5, 0.9, 1} {
		g := group{shares: map[string]float64{stable1: p, canary1: 1 - p}}
		for _, n := range []int{100, 1000, 10000} {
			for range 100 {
				if wrong := counted(p, n).wrongShares(g); len(wrong) > 0 {
					t.Errorf("p = %v, n = %d: %v", p, n, wrong)
				}
			}
			if other := p + max(2*tolerance(p, n), 0.05); other < 1 && len(counted(other, n).wrongShares(g)) == 0 {
				t.Errorf("p = %v, n = %d: drawn with %v, and nothing is wrong", p, n, other)
			}
		}
	}
}
