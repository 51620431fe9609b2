package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Step is one change and what has to come of it.
type Step struct {
	// Name is a word or two.
	Name string
	// Announcement says what the step does, in plain words.
	Announcement string
	// Do makes the change. RPCs that show it may come before it returns.
	Do     func(context.Context) error
	Expect Expectation
}

// Config is what Run needs. Every field has to be set.
type Config struct {
	Steps []Step
	// Backends are the names of all backends, in the order of display.
	Backends []string
	Recorder *Recorder
	// StepTime is how long a step lasts at least.
	StepTime time.Duration
	// Patience is how much longer it may take if the change has not arrived or
	// too few RPCs were answered.
	Patience time.Duration
	// Every is the time between two calls of Observer.Progressed.
	Every    time.Duration
	Observer Observer
	// Stop ends the traffic and returns when all RPCs have ended and been
	// recorded. It is called once.
	Stop func()
}

// Run runs the steps in order, up to the first that is not observed, then ends
// the traffic. It returns nil only if every step was observed and no RPC failed
// but those that a step excuses. If ctx ends early, the error wraps its cause.
func Run(ctx context.Context, cfg Config) error {
	r := &run{Config: cfg, start: time.Now()}
	err := r.steps(ctx)
	cfg.Stop()
	total := cfg.Recorder.Totals()
	if others := total.Failed - r.excused; err == nil && others > 0 {
		err = errors.New(r.lateFailures(others))
	}
	cfg.Observer.Finished(Summary{
		Observed: r.observed, Steps: len(cfg.Steps),
		Answered: total.Answered, Failed: total.Failed, Excused: r.excused,
		Elapsed: time.Since(r.start), Err: err,
	})
	return err
}

type run struct {
	Config
	start             time.Time
	observed, excused int
}

func (r *run) steps(ctx context.Context) error {
	for i := range r.Steps {
		number, step := i+1, &r.Steps[i]
		if err := r.step(ctx, number, step); err != nil {
			return fmt.Errorf("step %d of %d (%s) %w", number, len(r.Steps), step.Name, err)
		}
		r.observed++
	}
	return nil
}

func (r *run) step(ctx context.Context, number int, step *Step) error {
	r.Observer.Announced(Announcement{Step: number, Steps: len(r.Steps), Name: step.Name, Text: step.Announcement})
	ready := r.Recorder.begin(step.Expect)
	if err := step.Do(ctx); err != nil {
		return fmt.Errorf("could not be done: %w", err)
	}
	if err := r.wait(ctx, number, ready); err != nil {
		return err
	}
	result := r.judge(number)
	result.Name = step.Name
	r.Observer.Judged(result)
	r.excused += result.Excused
	if !result.Observed() {
		return fmt.Errorf("was not observed: %s", strings.Join(result.Faults, "; "))
	}
	return nil
}

// wait returns when the step's time is over and there are RPCs enough to judge
// it, or when patience is at its end.
func (r *run) wait(ctx context.Context, number int, ready <-chan struct{}) error {
	progress := time.NewTicker(r.Every)
	defer progress.Stop()
	planned := time.NewTimer(r.StepTime)
	defer planned.Stop()
	patience := time.NewTimer(r.StepTime + r.Patience)
	defer patience.Stop()

	// judge stays nil, and so is not waited for, until the planned time is
	// over.
	var judge <-chan struct{}
	for {
		select {
		case <-planned.C:
			judge = ready
		case <-judge:
			return nil
		case <-patience.C:
			return nil
		case <-progress.C:
			r.Observer.Progressed(r.progress(number))
		case <-ctx.Done():
			return fmt.Errorf("was cut short: %w", context.Cause(ctx))
		}
	}
}

func (r *run) progress(number int) Progress {
	p := Progress{
		Step: number, Steps: len(r.Steps),
		Elapsed: time.Since(r.start), Planned: r.StepTime * time.Duration(len(r.Steps)),
	}
	r.Recorder.read(func(t *tally) {
		p.Counts, p.Failed, p.Arrived = t.shares(), t.failed, t.phase != phaseUnseen
		p.Speed = t.speed(time.Now())
	})
	return p
}

func (r *run) judge(number int) Result {
	result := Result{Step: number, Steps: len(r.Steps)}
	r.Recorder.read(func(t *tally) {
		now := time.Now()
		result.Counts = t.shares()
		result.Checks = t.expect.checks(t.counted, r.Backends)
		result.Faults = t.faults(result.Checks, now)
		result.Answered, result.Failed = t.answered.Of(""), t.failed
		result.Excused, _, _ = t.excused()
		result.Speed = t.speed(now)
		if t.phase != phaseUnseen {
			result.Arrived = t.shown.Sub(t.began)
		}
	})
	return result
}

func (t *tally) speed(now time.Time) Speed {
	s := Speed{P50: t.latencies.quantile(0.5), P99: t.latencies.quantile(0.99)}
	if elapsed := now.Sub(t.began).Seconds(); elapsed > 0 {
		s.Rate = float64(t.answered.Of("")+t.failed) / elapsed
	}
	return s
}

// lateFailures describes failures that came after their step was judged.
func (r *run) lateFailures(n int) (description string) {
	r.Recorder.read(func(t *tally) {
		_, _, first := t.excused()
		description = describeFailures(n, first) + " (after the step was judged)"
	})
	return description
}
