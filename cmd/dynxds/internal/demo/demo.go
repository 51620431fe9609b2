package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/grpc"
)

const (
	// DefaultDuration is how long the demo runs unless told otherwise.
	DefaultDuration = 15 * time.Second
	// MinDuration leaves each step enough time for RPCs on most machines.
	MinDuration = 2 * time.Second
)

// patience is how much longer than planned a step may take.
const patience = 20 * time.Second

// Options are what a user chooses.
type Options struct {
	// Duration is how long the demo runs, at least MinDuration. It is divided
	// evenly among the steps; a slow machine may need longer.
	Duration time.Duration
	// JSON prints one object a line instead of text.
	JSON bool
}

// Run runs the demo and prints it to out. It returns nil only if every step was
// observed and no RPC failed that should not have. It sets the process's
// GRPC_XDS_BOOTSTRAP while it runs, so only one may run at a time.
func Run(ctx context.Context, opts Options, out io.Writer) error {
	if opts.Duration < MinDuration {
		return fmt.Errorf("--duration %v is too short: the %d steps need %v or more", opts.Duration, stepCount, MinDuration)
	}
	return runMesh(ctx, opts.Duration, patience, printer(out, opts.JSON), steps)
}

// A step is one change and what has to come of it.
type step struct {
	name string
	// text announces the change in plain words.
	text string
	// do makes the change. RPCs that show it may come before it returns.
	do     func(context.Context) error
	expect expectation
}

// runMesh starts a mesh and runs the steps in it.
func runMesh(ctx context.Context, duration, patience time.Duration, tell func(event), list func(m *mesh, startTraffic func()) []step) error {
	m, err := startMesh()
	if err != nil {
		return fmt.Errorf("setting up: %w", err)
	}
	defer m.close()
	opening := m.describe(duration)
	tell(opening)

	var (
		rec     = newRecorder(opening.layout())
		clients []*traffic
	)
	m.startFurther = func(name string, channel grpc.ClientConnInterface) {
		clients = append(clients, startFurtherTraffic(ctx, channel, name, rec.record))
	}
	r := &run{
		steps:    list(m, func() { clients = append(clients, startTraffic(ctx, m.channel, rec.record)) }),
		recorder: rec, patience: patience, every: time.Second, tell: tell,
		stop: func() {
			for _, client := range clients {
				client.stop()
			}
		},
	}
	r.stepTime = duration / time.Duration(len(r.steps))
	err = r.run(ctx)
	if rejections := m.rejections(); err != nil && len(rejections) > 0 {
		return fmt.Errorf("%w; %s", err, strings.Join(rejections, "; "))
	}
	return err
}

// A run carries out steps in order, up to the first that is not observed.
type run struct {
	steps    []step
	recorder *recorder
	stepTime time.Duration // how long a step lasts at least
	patience time.Duration // how much longer it may take if RPCs are missing
	every    time.Duration // the time between two looks at a step under way
	tell     func(event)
	// stop ends the traffic and returns when all RPCs have ended and were
	// recorded.
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
	answered, failed := r.recorder.totals()
	if late := failed - r.excused; err == nil && late > 0 {
		r.recorder.read(func(t *tally) {
			_, _, first := t.excused()
			err = errors.New(describeFailures(late, first) + " (after the step was judged)")
		})
	}
	end := &summary{
		Event: "summary", OK: err == nil, Observed: r.observed, Steps: len(r.steps),
		Answered: answered, Failed: failed, InFlight: r.excused, Elapsed: millis(time.Since(r.start)),
	}
	if err != nil {
		end.Error = err.Error()
	}
	r.tell(end)
	return err
}

// step makes one change, waits and judges what came of it.
func (r *run) step(ctx context.Context, id stepID, s *step) error {
	r.tell(&announcement{stepID: id.as("announced"), Text: s.text})
	ready := r.recorder.begin(s.expect)
	if err := s.do(ctx); err != nil {
		return fmt.Errorf("could not be done: %w", err)
	}
	if err := r.wait(ctx, id, ready); err != nil {
		return err
	}
	var result *result
	r.recorder.read(func(t *tally) { result = t.judge(id) })
	r.tell(result)
	r.excused += result.InFlight
	if len(result.Faults) > 0 {
		return fmt.Errorf("was not observed: %s", strings.Join(result.Faults, "; "))
	}
	return nil
}

// wait returns when the step's time is over and there are enough RPCs to judge it, or
// when patience ends.
func (r *run) wait(ctx context.Context, id stepID, ready <-chan struct{}) error {
	ticks := time.NewTicker(r.every)
	defer ticks.Stop()
	planned := time.NewTimer(r.stepTime)
	defer planned.Stop()
	patience := time.NewTimer(r.stepTime + r.patience)
	defer patience.Stop()

	// judge stays nil, and so is not waited for, until the planned time is over.
	var judge <-chan struct{}
	for {
		select {
		case <-planned.C:
			judge = ready
		case <-judge:
			return nil
		case <-patience.C:
			return nil
		case <-ticks.C:
			r.recorder.read(func(t *tally) { r.tell(t.progress(id, time.Since(r.start))) })
		case <-ctx.Done():
			return fmt.Errorf("was cut short: %w", context.Cause(ctx))
		}
	}
}
