package demo

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/cmdtest"
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

// perform runs steps whose do is given the traffic, inside a synctest bubble.
func perform(t *testing.T, ctx context.Context, steps func(*fakeTraffic) []step) (*keeper, error) {
	t.Helper()
	rec, seen := &recorder{mesh: lettered("Call")}, &keeper{}
	traffic := startFakeTraffic(t, rec)
	r := &run{
		steps: steps(traffic), recorder: rec, stepTime: time.Second, patience: 5 * time.Second, every: 100 * time.Millisecond,
		report: seen.report, stop: traffic.stop,
	}
	err := r.run(ctx)
	if seen.summary == nil {
		t.Fatal("there is no summary")
	}
	if (err == nil) != seen.summary.OK || err != nil && seen.summary.Error != err.Error() {
		t.Errorf("the summary is %+v, run returned %v", seen.summary, err)
	}
	return seen, err
}

func TestRunObservesEveryStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen, err := perform(t, t.Context(), func(f *fakeTraffic) []step {
			return []step{{
				name: "first", text: "half and half",
				do:     func(context.Context) error { f.behave(splitBy(1, 0.5)); return nil },
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
		if err != nil {
			t.Fatalf("Run: %v", err)
		}
		for i, want := range []string{"first: half and half", "second: all to a, a little later"} {
			if a := seen.announced[i]; a.Name+": "+a.Text != want || a.Step != i+1 || a.Steps != 2 {
				t.Errorf("announced %+v, want step %d of 2, %s", a, i+1, want)
			}
		}
		second := seen.results[1]
		if arrived := time.Duration(second.Arrived); arrived < 50*time.Millisecond || arrived > 55*time.Millisecond {
			t.Errorf("the second change arrived after %v, want 50 ms to 55 ms", arrived)
		}
		if second.Counts.of("a") < 900 || second.Counts.of("b") != 0 {
			t.Errorf("judged RPCs of the second step: %v, want 900 or more, all by a", second.Counts)
		}
		if s := second.speed; s.Rate < 900 || time.Duration(s.P50) < time.Millisecond || time.Duration(s.P50) > 1100*time.Microsecond {
			t.Errorf("speed %+v, want about 1000 RPC/s of 1 ms", s)
		}
		sum := seen.summary
		if sum.Observed != 2 || sum.Failed != 0 || sum.Elapsed > millis(2100*time.Millisecond) {
			t.Errorf("summary %+v, want 2 steps, no failure, 2 s", sum)
		}
		if len(seen.progress) < 18 {
			t.Errorf("progress was reported %d times in 2 s, want every 100 ms", len(seen.progress))
		}
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
		{"the change never shows", splitBy(0, 0.5), "no RPC has shown the change within 6s ("},
		{"nothing is answered", nil, "(0 RPCs were answered meanwhile)"},
		{"a backend never answers", splitBy(1, 1), "since then b has answered no RPC"},
		{"the shares are off", splitBy(1, 0.75), "expected 50.0% ±"},
		{"RPCs fail", failing(0.01, splitBy(1, 0.5)), "RPCs failed, the first: Call: broken"},
		{"an old configuration comes back", func(draw *rand.Rand, r *rpc) bool {
			return splitBy(draw.IntN(2), 0.5)(draw, r)
		}, "were not routed by configuration 1 although one before them was, the first by configuration 0"},
		{"too few RPCs", func(draw *rand.Rand, r *rpc) bool {
			return draw.IntN(100) == 0 && splitBy(1, 0.5)(draw, r)
		}, "too few RPCs were answered"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				seen, err := perform(t, t.Context(), func(f *fakeTraffic) []step {
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
				if len(seen.announced) != 1 || len(seen.results) != 1 || len(seen.results[0].Faults) == 0 {
					t.Errorf("announced %v, judged %v: want the first step only, not observed", seen.announced, seen.results)
				}
				if seen.summary.Observed != 0 {
					t.Errorf("the summary has %d steps observed, want 0", seen.summary.Observed)
				}
			})
		})
	}
}

func TestRunCountsExcusedFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var brokenAt time.Time
		seen, err := perform(t, t.Context(), func(f *fakeTraffic) []step {
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
		if r := seen.results[0]; r.Failed != 1 || r.InFlight != 1 {
			t.Errorf("%d failed, %d excused, want 1 and 1", r.Failed, r.InFlight)
		}
	})
}

// An RPC that fails after its step was judged, when the traffic ends, fails the run.
func TestRunFailsForLateFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec := &recorder{mesh: lettered("Call")}
		traffic := startFakeTraffic(t, rec)
		late := &run{
			steps:    []step{traffic.evenStep()},
			recorder: rec, stepTime: time.Second, patience: time.Second, every: time.Second, report: (&keeper{}).report,
			stop: func() {
				traffic.stop()
				rec.record(rpc{method: "Call", err: errBroken})
			},
		}
		err := late.run(t.Context())
		cmdtest.ErrorHas(t, "Run", err, "an RPC failed: Call: broken")
	})
}

func TestRunEndsWhenAChangeCannotBeMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := perform(t, t.Context(), func(*fakeTraffic) []step {
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
		seen, err := perform(t, ctx, func(f *fakeTraffic) []step {
			return []step{f.evenStep()}
		})
		if !errors.Is(err, stopped) || !strings.Contains(err.Error(), "step 1 of 1 (one) was cut short") {
			t.Errorf("Run: %v, want step 1 cut short: %v", err, stopped)
		}
		if elapsed := time.Duration(seen.summary.Elapsed); elapsed > 310*time.Millisecond {
			t.Errorf("Run took %v, want 300 ms", elapsed)
		}
	})
}
