package scenario

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fakeTraffic stands in for a client and its mesh: one RPC per millisecond of
// synctest's time, each answered as the present behaviour says.
type fakeTraffic struct {
	recorder *Recorder
	draw     *rand.Rand
	done     chan struct{}
	group    sync.WaitGroup

	mu sync.Mutex
	// answer fills in an RPC; false keeps it from being recorded.
	answer func(draw *rand.Rand, r *RPC) bool
}

func startFakeTraffic(t *testing.T, recorder *Recorder) *fakeTraffic {
	f := &fakeTraffic{recorder: recorder, draw: rand.New(rand.NewPCG(1, 2)), done: make(chan struct{})}
	f.group.Go(f.work)
	t.Cleanup(f.group.Wait)
	return f
}

func (f *fakeTraffic) work() {
	for {
		r := RPC{Method: "Call", Start: time.Now()}
		select {
		case <-time.After(time.Millisecond):
		case <-f.done:
			return
		}
		r.End = time.Now()
		f.mu.Lock()
		record := f.answer != nil && f.answer(f.draw, &r)
		f.mu.Unlock()
		if record {
			f.recorder.Record(r)
		}
	}
}

func (f *fakeTraffic) stop() {
	close(f.done)
	f.group.Wait()
}

func (f *fakeTraffic) behave(answer func(*rand.Rand, *RPC) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
}

// split answers by a with the given probability, else by b.
func split(configuration int, a float64) func(*rand.Rand, *RPC) bool {
	return func(draw *rand.Rand, r *RPC) bool {
		r.Configuration, r.Backend = configuration, "b"
		if draw.Float64() < a {
			r.Backend = "a"
		}
		return true
	}
}

var errBroken = errors.New("broken")

// log is an Observer that keeps what it is told.
type log struct {
	announced []Announcement
	progress  []Progress
	results   []Result
	summaries []Summary
}

func (l *log) Announced(a Announcement) { l.announced = append(l.announced, a) }
func (l *log) Progressed(p Progress)    { l.progress = append(l.progress, p) }
func (l *log) Judged(r Result)          { l.results = append(l.results, r) }
func (l *log) Finished(s Summary)       { l.summaries = append(l.summaries, s) }

// even is the split 50/50 by configuration n.
func even(n int) Expectation {
	return Expectation{
		Configuration: n,
		Groups:        []Group{{Shares: map[string]float64{"a": 0.5, "b": 0.5}}},
	}
}

// perform runs steps whose Do is given the traffic, inside a synctest bubble.
func perform(t *testing.T, ctx context.Context, steps func(*fakeTraffic) []Step) (*log, error) {
	t.Helper()
	recorder, seen := NewRecorder(), &log{}
	traffic := startFakeTraffic(t, recorder)
	err := Run(ctx, Config{
		Steps: steps(traffic), Backends: []string{"a", "b"}, Recorder: recorder,
		StepTime: time.Second, Patience: 5 * time.Second, Every: 100 * time.Millisecond,
		Observer: seen, Stop: traffic.stop,
	})
	if len(seen.summaries) != 1 {
		t.Fatalf("Finished was called %d times, want once", len(seen.summaries))
	}
	if !errors.Is(err, seen.summaries[0].Err) {
		t.Errorf("the summary has the error %v, Run returned %v", seen.summaries[0].Err, err)
	}
	return seen, err
}

// Given changes that all take effect, when the scenario runs, then every step
// is observed, in its time.
func TestRunObservesEveryStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen, err := perform(t, t.Context(), func(f *fakeTraffic) []Step {
			return []Step{{
				Name: "first", Announcement: "half and half",
				Do:     func(context.Context) error { f.behave(split(1, 0.5)); return nil },
				Expect: even(1),
			}, {
				Name: "second", Announcement: "all to a, a little later",
				Do: func(context.Context) error {
					time.AfterFunc(50*time.Millisecond, func() { f.behave(split(2, 1)) })
					return nil
				},
				Expect: Expectation{Configuration: 2, Groups: []Group{{Shares: map[string]float64{"a": 1}}}},
			}}
		})
		if err != nil {
			t.Fatalf("Run: %v", err)
		}
		want := []Announcement{{1, 2, "first", "half and half"}, {2, 2, "second", "all to a, a little later"}}
		if diff := cmp.Diff(want, seen.announced); diff != "" {
			t.Errorf("announced (-want +got):\n%s", diff)
		}
		second := seen.results[1]
		if second.Arrived < 50*time.Millisecond || second.Arrived > 55*time.Millisecond {
			t.Errorf("the second change arrived after %v, want 50 ms to 55 ms", second.Arrived)
		}
		if second.Counts.Of("a") < 900 || second.Counts.Of("b") != 0 {
			t.Errorf("judged RPCs of the second step: %v, want 900 or more, all by a", second.Counts)
		}
		if s := second.Speed; s.Rate < 900 || s.P50 < time.Millisecond || s.P50 > 1100*time.Microsecond {
			t.Errorf("speed %+v, want about 1000 RPC/s of 1 ms", s)
		}
		sum := seen.summaries[0]
		if sum.Observed != 2 || sum.Failed != 0 || sum.Elapsed > 2100*time.Millisecond {
			t.Errorf("summary %+v, want 2 steps, no failure, 2 s", sum)
		}
		if len(seen.progress) < 18 {
			t.Errorf("Progressed was called %d times in 2 s, want every 100 ms", len(seen.progress))
		}
	})
}

// Given a step that does not go as expected, when the scenario runs, then the
// error names the step and the reason, and no later step is begun.
func TestRunSaysWhyAStepWasNotObserved(t *testing.T) {
	failing := func(every float64, answer func(*rand.Rand, *RPC) bool) func(*rand.Rand, *RPC) bool {
		return func(draw *rand.Rand, r *RPC) bool {
			if draw.Float64() < every {
				r.Err = errBroken
				return true
			}
			return answer(draw, r)
		}
	}
	tests := []struct {
		name   string
		answer func(*rand.Rand, *RPC) bool
		want   string
	}{
		{"the change never shows", split(0, 0.5), "no RPC has shown the change within 6s ("},
		{"nothing is answered", nil, "(0 RPCs were answered meanwhile)"},
		{"a backend never answers", split(1, 1), "since then b has answered no RPC"},
		{"the shares are off", split(1, 0.75), "expected 50.0% ±"},
		{"RPCs fail", failing(0.01, split(1, 0.5)), "RPCs failed, the first: Call: broken"},
		{"an old configuration comes back", func(draw *rand.Rand, r *RPC) bool {
			return split(draw.IntN(2), 0.5)(draw, r)
		}, "were not routed by configuration 1 although one before them was, the first by configuration 0"},
		{"too few RPCs", func(draw *rand.Rand, r *RPC) bool {
			return draw.IntN(100) == 0 && split(1, 0.5)(draw, r)
		}, "too few RPCs were answered"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				seen, err := perform(t, t.Context(), func(f *fakeTraffic) []Step {
					step := Step{
						Name:   "one",
						Do:     func(context.Context) error { f.behave(tt.answer); return nil },
						Expect: even(1),
					}
					return []Step{step, step}
				})
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("Run: %v, want an error with %q", err, tt.want)
				} else if !strings.HasPrefix(err.Error(), "step 1 of 2 (one) was not observed: ") {
					t.Errorf("Run: %v, want the step named", err)
				}
				if len(seen.announced) != 1 || len(seen.results) != 1 || seen.results[0].Observed() {
					t.Errorf("announced %v, judged %v: want the first step only, not observed", seen.announced, seen.results)
				}
				if seen.summaries[0].Observed != 0 {
					t.Errorf("the summary has %d steps observed, want 0", seen.summaries[0].Observed)
				}
			})
		})
	}
}

// Given RPCs that fail at the moment of a change, when the step excuses
// exactly those, then it is observed and they are counted.
func TestRunCountsExcusedFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var brokenAt time.Time
		seen, err := perform(t, t.Context(), func(f *fakeTraffic) []Step {
			expect := even(1)
			expect.Excuses = func(r RPC) bool { return !r.Start.After(brokenAt) }
			expect.Shows = func(r RPC) bool { return r.Start.After(brokenAt) }
			return []Step{{
				Name: "break",
				Do: func(context.Context) error {
					brokenAt = time.Now()
					f.recorder.Record(RPC{Method: "Call", Start: brokenAt, End: brokenAt, Err: errBroken})
					f.behave(split(1, 0.5))
					return nil
				},
				Expect: expect,
			}}
		})
		if err != nil {
			t.Fatalf("Run: %v", err)
		}
		if r := seen.results[0]; r.Failed != 1 || r.Excused != 1 {
			t.Errorf("%d failed, %d excused, want 1 and 1", r.Failed, r.Excused)
		}
	})
}

// Given an RPC that fails only when the traffic is ended, after its step was
// judged, then Run fails all the same.
func TestRunMindsLateFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder := NewRecorder()
		traffic := startFakeTraffic(t, recorder)
		err := Run(t.Context(), Config{
			Steps: []Step{{
				Name:   "one",
				Do:     func(context.Context) error { traffic.behave(split(1, 0.5)); return nil },
				Expect: even(1),
			}},
			Backends: []string{"a", "b"}, Recorder: recorder,
			StepTime: time.Second, Patience: time.Second, Every: time.Second, Observer: &log{},
			Stop: func() {
				traffic.stop()
				recorder.Record(RPC{Method: "Call", Err: errBroken})
			},
		})
		if err == nil || !strings.Contains(err.Error(), "an RPC failed: Call: broken") {
			t.Errorf("Run: %v, want the late failure", err)
		}
	})
}

// Given a Do that fails, then Run says so and begins no other step.
func TestRunEndsWhenAChangeCannotBeMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := perform(t, t.Context(), func(*fakeTraffic) []Step {
			return []Step{{Name: "one", Do: func(context.Context) error { return errBroken }, Expect: even(1)}}
		})
		if !errors.Is(err, errBroken) || !strings.Contains(err.Error(), "step 1 of 1 (one) could not be done") {
			t.Errorf("Run: %v, want step 1 could not be done: %v", err, errBroken)
		}
	})
}

// Given a context that ends in the middle of a step, then Run ends at once, and
// says where.
func TestRunEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stopped := errors.New("stopped by hand")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, stopped)
		defer cancel()
		seen, err := perform(t, ctx, func(f *fakeTraffic) []Step {
			return []Step{{
				Name:   "one",
				Do:     func(context.Context) error { f.behave(split(1, 0.5)); return nil },
				Expect: even(1),
			}}
		})
		if !errors.Is(err, stopped) || !strings.Contains(err.Error(), "step 1 of 1 (one) was cut short") {
			t.Errorf("Run: %v, want step 1 cut short: %v", err, stopped)
		}
		if elapsed := seen.summaries[0].Elapsed; elapsed > 310*time.Millisecond {
			t.Errorf("Run took %v, want 300 ms", elapsed)
		}
	})
}
