// Package demo shows xDS at work in one process: a control plane, four gRPC backends on loopback, and a client that does what a
// user's program does. It imports dynxds for its side effect, finds the control plane through a bootstrap file, and dials
// "xds:///…". Five changes are made while RPCs run, and each has to show in the RPCs themselves. It is not for load: see the
// benchmarks.
//
// A mesh is what runs; traffic makes the RPCs; a step is one change and its expected effect; a tally judges the step by the RPCs.
// One answer does not show which of two splits routed the RPC, so every RouteConfiguration adds its name to the response headers.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/retries"
	"github.com/dynxds/dynxds/mesh/internal/styled"
	"github.com/dynxds/dynxds/mesh/internal/terminal"
	"github.com/dynxds/dynxds/mesh/internal/webpage"
	"github.com/dynxds/dynxds/mesh/statuspage"
)

const (
	// stepTime is how long a step takes at least. A slow machine may take longer to make enough RPCs.
	stepTime = 2 * time.Second
	// patience is when a step that has not enough RPCs has failed.
	patience = 20 * time.Second
)

// demo is one run.
type demo struct {
	mesh               *mesh
	tally              tally
	out                io.Writer
	stepTime, patience time.Duration
}

// Run runs the demo and prints it to out. It returns nil only if every step was observed and no RPC failed that should not have. If
// ctx ends before that, the error wraps its cause.
//
// If page is not empty, it is the address of a status page (see package webpage), and the RPCs go on after the last step until ctx
// ends.
//
// Run sets the environment variable GRPC_XDS_BOOTSTRAP, so only one may run at a time.
func Run(ctx context.Context, page string, out io.Writer) error {
	d := &demo{out: out, stepTime: stepTime, patience: patience}
	return d.run(ctx, page, (*demo).steps)
}

func (d *demo) run(ctx context.Context, page string, steps func(*demo) []step) (err error) {
	d.mesh, err = newMesh(ctx, d.tally.record)
	defer d.mesh.close()
	if err != nil {
		return fmt.Errorf("setting up: %w", err)
	}
	text := d.mesh.describe()
	if page != "" {
		served, err := webpage.Serve(page, statuspage.WithControlPlane(d.mesh.control, d.mesh.store))
		if err != nil {
			return err
		}
		defer served.Close()
		text.Add(styled.Plain, "  status page    %s", served.URL)
	}
	d.print(text)

	start, list, observed := time.Now(), steps(d), 0
	for i := range list {
		number := fmt.Sprintf("%d of %d", i+1, len(list))
		if err = d.step(ctx, number, &list[i]); err != nil {
			err = fmt.Errorf("step %s (%s) %w", number, list[i].name, err)
			break
		}
		observed++
	}
	if err == nil && page != "" {
		d.print(styled.Text{{}, {Text: "The RPCs go on for the status page. An interrupt (Ctrl-C) ends them."}})
		<-ctx.Done()
	}
	d.mesh.stop()
	if failed := d.tally.failed; err == nil && failed > 0 {
		err = fmt.Errorf("%s failed after the steps were judged", faults.Count(failed, "RPC"))
	}
	style := styled.Good
	if err != nil {
		style = styled.Bad
	}
	d.print(styled.Text{{}, {Style: style, Text: fmt.Sprintf("%d of %d steps observed, in %.1f s. %s answered, %d failed (and %d in flight when the backend stopped).",
		observed, len(list), time.Since(start).Seconds(), faults.Count(d.tally.answered, "RPC"), d.tally.failed, d.tally.excused)}})
	return err
}

// step makes one change, waits, and judges the RPCs since.
func (d *demo) step(ctx context.Context, number string, s *step) error {
	text := styled.Text{{}, {Style: styled.Heading, Text: "Step " + number + ": " + s.name}}
	text.AddAll(styled.Plain, s.text)
	d.print(text)
	if err := s.do(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("could not be done: %w", err)
	}
	d.tally.begin(s.groups)
	if d.wait(ctx); ctx.Err() != nil {
		return fmt.Errorf("was cut short: %w", context.Cause(ctx))
	}
	text, reasons := d.tally.verdict()
	if len(reasons) > 0 {
		why := strings.Join(reasons, "; ")
		text.Add(styled.Bad, "NOT OBSERVED: %s.", why)
		d.print(text)
		return errors.New("was not observed: " + why)
	}
	text.Add(styled.Good, "Observed: every backend that should answer did so within %v of the change.",
		d.tally.arrived.Sub(d.tally.changed).Round(10*time.Microsecond))
	d.print(text)
	return nil
}

// wait returns when the step's time has passed and there are enough RPCs to judge it, or when patience or the context ends.
func (d *demo) wait(ctx context.Context) {
	for begin := time.Now(); time.Since(begin) < d.stepTime || !d.tally.enough() && time.Since(begin) < d.stepTime+d.patience; {
		if retries.Wait(ctx, 20*time.Millisecond) != nil {
			return
		}
	}
}

// print prints lines. A reader may stop reading, which is no error: the exit status reports the outcome.
func (d *demo) print(text styled.Text) { _ = terminal.Print(d.out, text) }
