package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/webpage"
	"github.com/dynxds/dynxds/observe/statuspage"
)

const (
	// DefaultDuration is the duration of the demo unless an option sets another one.
	DefaultDuration = 15 * time.Second
	// PageDuration is the default with a status page, which takes a while to look at.
	PageDuration = 5 * time.Minute
	// MinDuration leaves each step enough time for RPCs on most machines.
	MinDuration = 2 * time.Second
	// patience is how much longer than planned a step may take.
	patience = 20 * time.Second
)

// Options are what a user chooses.
type Options struct {
	// Duration of the demo, at least MinDuration. It is divided evenly among the steps; a
	// slow machine may take longer.
	Duration time.Duration
	// JSON prints one object per line instead of text.
	JSON bool
	// TLS makes the connections between clients and backends mTLS, as the control plane's
	// Clusters ask for, with certificates of the demo's own.
	TLS bool
	// Page is the address of the status page, see package webpage; empty: there is none.
	Page string
	// Relay puts a relay between the clients and the control plane.
	Relay bool
}

// Run runs the demo and prints it to out. It returns nil only if every step was
// observed and no RPC failed that should not have. It sets the process's
// GRPC_XDS_BOOTSTRAP while it runs, so only one may run at a time.
func Run(ctx context.Context, opts Options, out io.Writer) error {
	if opts.Duration < MinDuration {
		return fmt.Errorf("--duration %v is too short: the %d steps need %v or more", opts.Duration, stepCount, MinDuration)
	}
	return runMesh(ctx, opts, patience, printer(out, opts.JSON), steps)
}

// runMesh starts a mesh and runs the steps in it.
func runMesh(ctx context.Context, opts Options, patience time.Duration, report func(event), list func(*mesh) []step) error {
	m, err := startMesh(opts)
	if err != nil {
		return fmt.Errorf("setting up: %w", err)
	}
	defer m.close()
	opening := m.describe(opts.Duration)
	if opts.Page != "" {
		page, err := webpage.Serve(opts.Page, statuspage.WithControlPlane(m.plane.Control(), m.plane.Store()))
		if err != nil {
			return err
		}
		defer page.Close()
		opening.Page = page.URL
	}
	report(opening)

	rec := &recorder{mesh: opening}
	m.traffic = newTraffic(ctx, rec.record)
	r := &run{steps: list(m), recorder: rec, patience: patience, every: time.Second, report: report, stop: m.traffic.stop}
	r.stepTime = opts.Duration / time.Duration(len(r.steps))
	err = r.run(ctx)
	if rejections := m.rejections(); err != nil && len(rejections) > 0 {
		return fmt.Errorf("%w; %s", err, strings.Join(rejections, "; "))
	}
	return err
}

// step is one change and its expected effect.
type step struct {
	name string
	// text announces the change.
	text string
	// do makes the change. RPCs may show it before do returns.
	do     func(context.Context) error
	expect expectation
}

// run carries out steps in order, up to the first that is not observed.
type run struct {
	steps    []step
	recorder *recorder
	stepTime time.Duration // the minimum duration of a step
	patience time.Duration // how much longer a step may take if RPCs are missing
	every    time.Duration // the interval of progress events
	report   func(event)
	// stop ends the traffic. It returns when all RPCs have ended and were recorded.
	stop func()

	start             time.Time
	observed, excused int
}

// run returns nil only if every step was observed and no RPC failed but those that a
// step excuses. If ctx ends early, the error wraps its cause.
func (r *run) run(ctx context.Context) error {
	r.start = time.Now()
	var err error
	for i := range r.steps {
		id := stepID{Step: i + 1, Steps: len(r.steps), Name: r.steps[i].name}
		if err = r.step(ctx, id, &r.steps[i]); err != nil {
			err = fmt.Errorf("step %d of %d (%s) %w", id.Step, id.Steps, id.Name, err)
			break
		}
		r.observed++
	}
	r.stop()
	if late := r.recorder.failed - r.excused; err == nil && late > 0 {
		_, _, first := r.recorder.tally.excused()
		err = errors.New(describeFailures(late, first) + " (after the step was judged)")
	}
	end := &summary{
		Event: "summary", OK: err == nil, Observed: r.observed, Steps: len(r.steps), Answered: r.recorder.answered,
		Failed: r.recorder.failed, InFlight: r.excused, Elapsed: millis(time.Since(r.start)),
	}
	if err != nil {
		end.Error = err.Error()
	}
	r.report(end)
	return err
}

// step makes one change, waits, and judges the RPCs since.
func (r *run) step(ctx context.Context, id stepID, s *step) error {
	r.report(&announcement{stepID: id.as("announced"), Text: s.text})
	ready := r.recorder.begin(s.expect)
	if err := s.do(ctx); err != nil {
		return fmt.Errorf("could not be done: %w", err)
	}
	if err := r.wait(ctx, id, ready); err != nil {
		return err
	}
	var result *result
	r.recorder.read(func(t *tally) { result = t.judge(id) })
	r.report(result)
	r.excused += result.InFlight
	if len(result.Faults) > 0 {
		return fmt.Errorf("was not observed: %s", strings.Join(result.Faults, "; "))
	}
	return nil
}

// wait returns when the step's time has passed and there are enough RPCs to judge it, or
// when patience ends.
func (r *run) wait(ctx context.Context, id stepID, ready <-chan struct{}) error {
	ticks := time.NewTicker(r.every)
	defer ticks.Stop()
	planned, deadline := time.After(r.stepTime), time.After(r.stepTime+r.patience)
	var judge <-chan struct{} // nil, which blocks, until the planned time has passed
	for {
		select {
		case <-planned:
			judge = ready
		case <-judge:
			return nil
		case <-deadline:
			return nil
		case <-ticks.C:
			r.recorder.read(func(t *tally) { r.report(t.progress(id, time.Since(r.start))) })
		case <-ctx.Done():
			return fmt.Errorf("was cut short: %w", context.Cause(ctx))
		}
	}
}
