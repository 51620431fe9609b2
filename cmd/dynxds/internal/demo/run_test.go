package demo

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/cmdtest"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// fakeTraffic stands in for a client and its mesh: it makes one RPC per millisecond of
// synctest's time, which the present behaviour answers.
type fakeTraffic struct {
	recorder *recorder
	draw     *rand.Rand
	done     chan struct{}
	group    sync.WaitGroup

	mu sync.Mutex
	// answer completes an RPC, and reports whether to record it.
	answer func(draw *rand.Rand, r *rpc) bool
}

func startFakeTraffic(t *testing.T, recorder *recorder) *fakeTraffic {
	f := &fakeTraffic{recorder: recorder, draw: rand.New(rand.NewPCG(1, 2)), done: make(chan struct{})}
	f.group.Go(f.work)
	t.Cleanup(f.group.Wait)
	return f
}

func (f *fakeTraffic) work() {
	for {
		r := rpc{method: "Call", start: time.Now()}
		select {
		case <-time.After(time.Millisecond):
		case <-f.done:
			return
		}
		r.end = time.Now()
		f.mu.Lock()
		record := f.answer != nil && f.answer(f.draw, &r)
		f.mu.Unlock()
		if record {
			f.recorder.record(r)
		}
	}
}

func (f *fakeTraffic) stop() {
	close(f.done)
	f.group.Wait()
}

func (f *fakeTraffic) behave(answer func(*rand.Rand, *rpc) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
}

// splitBy answers by a with the given probability, else by b.
func splitBy(configuration int, a float64) func(*rand.Rand, *rpc) bool {
	return func(draw *rand.Rand, r *rpc) bool {
		r.configuration, r.backend = configuration, "b"
		if draw.Float64() < a {
			r.backend = "a"
		}
		return true
	}
}

var errBroken = errors.New("broken")

// even is the split 50/50 by configuration n.
func even(n int) expectation {
	return expectation{
		configuration: n,
		groups:        []group{{shares: map[string]float64{"a": 0.5, "b": 0.5}}},
	}
}

// evenStep is a step with an even split.
func (f *fakeTraffic) evenStep() step {
	return step{name: "one", do: func(context.Context) error { f.behave(splitBy(1, 0.5)); return nil }, expect: even(1)}
}

// perform runs steps whose do is given the traffic, inside a synctest bubble, and returns what it prints.
func perform(ctx context.Context, t *testing.T, steps func(*fakeTraffic) []step) (string, error) {
	t.Helper()
	out := new(bytes.Buffer)
	err := performOn(ctx, t, out, steps)
	return out.String(), err
}

func performOn(ctx context.Context, t *testing.T, out io.Writer, steps func(*fakeTraffic) []step) error {
	t.Helper()
	rec := new(recorder)
	traffic := startFakeTraffic(t, rec)
	cols := columns{[][2]string{{"a", "c"}, {"b", "c"}}, []string{"Call"}}
	r := &run{
		steps: steps(traffic), recorder: rec, columns: cols, chart: newChart(cols.backends),
		stepTime: 2500 * time.Millisecond, patience: 5 * time.Second, out: out, stop: traffic.stop,
	}
	return r.run(ctx)
}

const wantText = `
Step 1 of 2: first
half and half
  1.0 s   a 50.1%   b 49.9%   0 failed
  2.0 s   a 50.0%   b 50.0%   0 failed

backend    cluster      Call      all
a          c           50.0%    50.0%  ##########
b          c           50.0%    50.0%  ##########
RPCs                   2,497    2,497
Expected (± is 5 standard deviations): a 50±5.0%, b 50±5.0%.
Observed: 1ms from the change to the first RPC that shows it. 2,500 RPCs
  answered, none failed.

Step 2 of 2: second
all to a, a little later
  3.5 s   a 100.0%   b  0.0%   0 failed
  4.5 s   a 100.0%   b  0.0%   0 failed

backend    cluster      Call      all
a          c          100.0%   100.0%  ####################
b          c            0.0%     0.0%
RPCs                   2,448    2,448
Expected (± is 5 standard deviations): a 100%.
Observed: 50.5ms from the change to the first RPC that shows it. 2,500 RPCs
  answered, none failed.

All 2 steps observed, in 5.0 s. 5,000 RPCs answered, 0 failed.
`

func TestRunObservesEveryStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, err := perform(t.Context(), t, func(f *fakeTraffic) []step {
			turn := 0
			return []step{{
				name: "first", text: "half and half",
				do: func(context.Context) error {
					time.Sleep(500 * time.Microsecond) // so that no RPC ends when a clock ticks
					f.behave(func(_ *rand.Rand, r *rpc) bool {
						turn++
						r.configuration, r.backend = 1, []string{"a", "b"}[turn%2]
						return true
					})
					return nil
				},
				expect: even(1),
			}, {
				name: "second", text: "all to a, a little later",
				do: func(context.Context) error {
					time.AfterFunc(50*time.Millisecond, func() { f.behave(splitBy(2, 1)) })
					return nil
				},
				expect: expectation{configuration: 2, groups: []group{{shares: map[string]float64{"a": 1}}}},
			}}
		})
		xdstest.NoError(t, err)
		xdstest.Equal(t, "output", wantText, out)
	})
}

// The error names the step and the reason, and no later step begins.
func TestRunSaysWhyAStepWasNotObserved(t *testing.T) {
	failing := func(every float64, answer func(*rand.Rand, *rpc) bool) func(*rand.Rand, *rpc) bool {
		return func(draw *rand.Rand, r *rpc) bool {
			if draw.Float64() < every {
				r.err = errBroken
				return true
			}
			return answer(draw, r)
		}
	}
	tests := []struct {
		name   string
		answer func(*rand.Rand, *rpc) bool
		want   string
	}{
		{"the change never shows", splitBy(0, 0.5), "no RPC has shown the change within 7.5s ("},
		{"nothing is answered", nil, "(0 RPCs were answered meanwhile)"},
		{"a backend never answers", splitBy(1, 1), "since then b has answered no RPC"},
		{"the shares are off", splitBy(1, 0.75), "expected 50.0% ±"},
		{"RPCs fail", failing(0.01, splitBy(1, 0.5)), "RPCs failed, the first: Call: broken"},
		{"an old configuration comes back", func(draw *rand.Rand, r *rpc) bool {
			return splitBy(draw.IntN(2), 0.5)(draw, r)
		}, "were not routed by configuration 1 although an RPC before was, the first by configuration 0"},
		{"too few RPCs", func(draw *rand.Rand, r *rpc) bool {
			return draw.IntN(100) == 0 && splitBy(1, 0.5)(draw, r)
		}, "too few RPCs were answered"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				out, err := perform(t.Context(), t, func(f *fakeTraffic) []step {
					one := step{
						name:   "one",
						do:     func(context.Context) error { f.behave(tt.answer); return nil },
						expect: even(1),
					}
					return []step{one, one}
				})
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("Run: %v, want an error with %q", err, tt.want)
				} else if !strings.HasPrefix(err.Error(), "step 1 of 2 (one) was not observed: ") {
					t.Errorf("Run: %v, want the step named", err)
				}
				for _, want := range []string{"\nNOT OBSERVED: ", "\nOnly 0 of 2 steps observed, in "} {
					if !strings.Contains(out, want) || strings.Contains(out, "Step 2") {
						t.Errorf("the output lacks %q, or has a second step:\n%s", want, out)
					}
				}
			})
		})
	}
}

func TestRunCountsExcusedFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var brokenAt time.Time
		out, err := perform(t.Context(), t, func(f *fakeTraffic) []step {
			expect := even(1)
			expect.excuses = func(r rpc) bool { return !r.start.After(brokenAt) }
			expect.shows = func(r rpc) bool { return r.start.After(brokenAt) }
			return []step{{
				name: "break",
				do: func(context.Context) error {
					brokenAt = time.Now()
					f.recorder.record(rpc{method: "Call", start: brokenAt, end: brokenAt, err: errBroken})
					f.behave(splitBy(1, 0.5))
					return nil
				},
				expect: expect,
			}}
		})
		if err != nil {
			t.Fatalf("Run: %v", err)
		}
		if want := " 1 failed (1 in flight when the backend stopped)."; !strings.Contains(strings.ReplaceAll(out, "\n", " "), want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	})
}

// An RPC that fails after its step was judged, when the traffic ends, fails the run.
func TestRunFailsForLateFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec := new(recorder)
		traffic := startFakeTraffic(t, rec)
		late := &run{
			steps:    []step{traffic.evenStep()},
			recorder: rec, chart: newChart(nil), stepTime: time.Second, patience: time.Second, out: io.Discard,
			stop: func() {
				traffic.stop()
				rec.record(rpc{method: "Call", err: errBroken})
			},
		}
		err := late.run(t.Context())
		cmdtest.ErrorHas(t, "Run", err, "1 RPC failed after the steps were judged")
	})
}

func TestRunEndsWhenAChangeCannotBeMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := perform(t.Context(), t, func(*fakeTraffic) []step {
			return []step{{name: "one", do: func(context.Context) error { return errBroken }, expect: even(1)}}
		})
		if !errors.Is(err, errBroken) || !strings.Contains(err.Error(), "step 1 of 1 (one) could not be done") {
			t.Errorf("Run: %v, want step 1 could not be done: %v", err, errBroken)
		}
	})
}

func TestRunIsCutShortByItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stopped := errors.New("stopped by hand")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, stopped)
		defer cancel()
		_, err := perform(ctx, t, func(f *fakeTraffic) []step {
			return []step{f.evenStep()}
		})
		if !errors.Is(err, stopped) || !strings.Contains(err.Error(), "step 1 of 1 (one) was cut short") {
			t.Errorf("Run: %v, want step 1 cut short: %v", err, stopped)
		}
	})
}

// The tolerance is what independent draws keep to, and no more than that: the right split stays within it, one that
// is off by twice as much does not.
func TestToleranceSeparatesRightFromWrong(t *testing.T) {
	t.Parallel()
	draw := rand.New(rand.NewPCG(3, 4))
	counted := func(p float64, n int) counts {
		c := counts{}
		for range n {
			backend := "b"
			if draw.Float64() < p {
				backend = "a"
			}
			c[[2]string{backend, "Call"}]++
		}
		return c
	}
	for _, p := range []float64{0, 0.1, 0.5, 0.9, 1} {
		e := expectation{groups: []group{{shares: map[string]float64{"a": p, "b": 1 - p}}}}
		for _, n := range []int{100, 1000, 10000} {
			for range 100 {
				if wrong := e.wrongShares(counted(p, n)); len(wrong) > 0 {
					t.Errorf("p = %v, n = %d: %v", p, n, wrong)
				}
			}
			if other := p + max(2*tolerance(p, n), 0.05); other < 1 && len(e.wrongShares(counted(other, n))) == 0 {
				t.Errorf("p = %v, n = %d: drawn with %v, and nothing is wrong", p, n, other)
			}
		}
	}
}

// A configuration's number survives what time an RPC loses on its way, and rounding in both directions.
func TestConfigurationIsReadFromTheDeadline(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 4; n++ {
		for _, change := range []time.Duration{time.Second, 0, -time.Second, -20 * time.Second} {
			if got := configurationOf(maxStreamDuration(n) + change); got != n {
				t.Errorf("configurationOf(that of %d %+v) = %d", n, change, got)
			}
		}
	}
}
