package demo

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/exit"
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
	// Duration of the demo, at least MinDuration. It is divided evenly among the steps; a slow machine may
	// take longer.
	Duration time.Duration
	// Page is the address of the status page, see package webpage; empty: there is none.
	Page string
}

// Run runs the demo and prints it to out. It returns nil only if every step was observed and no RPC failed that
// should not have. It sets the process's GRPC_XDS_BOOTSTRAP while it runs, so only one may run at a time.
func Run(ctx context.Context, opts Options, out io.Writer) error {
	if opts.Duration < MinDuration {
		return exit.Usagef("--duration %v is too short: the %d steps need %v or more", opts.Duration, stepCount, MinDuration)
	}
	return runMesh(ctx, opts, patience, out, steps)
}

// runMesh starts a mesh and runs the steps in it.
func runMesh(ctx context.Context, opts Options, patience time.Duration, out io.Writer, list func(*mesh) []step) error {
	m, err := startMesh()
	if err != nil {
		return fmt.Errorf("setting up: %w", err)
	}
	defer m.close()
	printLines(out, m.describe(opts.Duration)...)
	shares := newChart(m.columns().backends)
	if opts.Page != "" {
		page, err := servePage(opts.Page, m.plane, m.store, shares)
		if err != nil {
			return err
		}
		defer page.Close()
		printLines(out, "  status page    "+page.URL, "  chart          "+strings.TrimSuffix(page.URL, "/")+chartPath)
	}
	rec := new(recorder)
	m.traffic = newTraffic(ctx, rec.record)
	r := &run{steps: list(m), recorder: rec, columns: m.columns(), chart: shares, patience: patience, out: out, stop: m.traffic.stop}
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
	columns  columns
	chart    *chart
	stepTime time.Duration // the minimum duration of a step
	patience time.Duration // how much longer a step may take if RPCs are missing
	out      io.Writer
	// stop ends the traffic. It returns when all RPCs have ended and were recorded.
	stop func()

	start             time.Time
	observed, excused int
}

// run returns nil only if every step was observed and no RPC failed but those that a step excuses. If ctx ends
// early, the error wraps its cause.
func (r *run) run(ctx context.Context) error {
	r.start = time.Now()
	var err error
	for i := range r.steps {
		s := &r.steps[i]
		title := fmt.Sprintf("Step %d of %d: %s", i+1, len(r.steps), s.name)
		printLines(r.out, append([]string{"", title}, wrap(s.text, "")...)...)
		r.chart.begin(title)
		if err = r.step(ctx, s); err != nil {
			err = fmt.Errorf("step %d of %d (%s) %w", i+1, len(r.steps), s.name, err)
			break
		}
		r.observed++
	}
	r.stop()
	answered, failed := r.recorder.totals()
	if late := failed - r.excused; err == nil && late > 0 {
		err = fmt.Errorf("%s after the steps were judged", plural(late, "RPC failed", "RPCs failed"))
	}
	printLines(r.out, r.summary(answered, failed, err)...)
	return err
}

// step makes one change, waits, and judges the RPCs since.
func (r *run) step(ctx context.Context, s *step) error {
	ready := r.recorder.begin(s.expect)
	if err := s.do(ctx); err != nil {
		return fmt.Errorf("could not be done: %w", err)
	}
	if err := r.wait(ctx, ready); err != nil {
		return err
	}
	var faults []string
	r.recorder.read(func(t *tally) {
		faults = t.faults()
		excused, _, _ := t.excused()
		r.excused += excused
		printLines(r.out, r.columns.verdict(t, faults)...)
	})
	if len(faults) > 0 {
		return fmt.Errorf("was not observed: %s", strings.Join(faults, "; "))
	}
	return nil
}

// screen is where a chart can be drawn in place: a terminal.Writer, if it is a terminal.
type screen interface {
	Redraws() bool
	Redraw(text string) error
}

// show adds a sample to the chart, and shows it: in place on a terminal, elsewhere as a line every second.
func (r *run) show(n int) {
	r.chart.sample(r.recorder.byBackend())
	if s, ok := r.out.(screen); ok && s.Redraws() {
		_, failed := r.recorder.totals()
		_ = s.Redraw(r.chart.text(failed)) // as with lines, a reader may be gone
	} else if n%progressEvery == 0 {
		r.recorder.read(func(t *tally) { printLines(r.out, r.columns.progress(t, time.Since(r.start))) })
	}
}

// wait returns when the step's time has passed and there are enough RPCs to judge it, or when patience ends.
func (r *run) wait(ctx context.Context, ready <-chan struct{}) error {
	ticks := time.NewTicker(sampling)
	defer ticks.Stop()
	planned, deadline := time.After(r.stepTime), time.After(r.stepTime+r.patience)
	var judge <-chan struct{} // nil, which blocks, until the planned time has passed
	for n := 1; ; {
		select {
		case <-planned:
			judge = ready
		case <-judge:
			return nil
		case <-deadline:
			return nil
		case <-ticks.C:
			r.show(n)
			n++
		case <-ctx.Done():
			return fmt.Errorf("was cut short: %w", context.Cause(ctx))
		}
	}
}

// summary is printed last.
func (r *run) summary(answered, failed int, err error) []string {
	opening := fmt.Sprintf("All %d steps observed", len(r.steps))
	if r.observed < len(r.steps) {
		opening = fmt.Sprintf("Only %d of %d steps observed", r.observed, len(r.steps))
	} else if err != nil {
		opening = "All steps observed, but RPCs failed"
	}
	text := fmt.Sprintf("%s, in %.1f s. %s answered, %s failed", opening, time.Since(r.start).Seconds(),
		plural(answered, "RPC", "RPCs"), thousands(failed))
	if r.excused > 0 {
		text += fmt.Sprintf(" (%s in flight when the backend stopped)", thousands(r.excused))
	}
	return append([]string{""}, wrap(text+".", "")...)
}
