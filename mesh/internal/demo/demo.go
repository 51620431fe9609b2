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

func (d *demo) run(ctx context.Context, page string, steps func(*demo) []step) error {
	var err error
	d.mesh, err = startMesh(ctx, d.tally.record)
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

	start := time.Now()
	list := steps(d)
	observed := 0
	for i := range list {
		if err = d.step(ctx, fmt.Sprintf("%d of %d", i+1, len(list)), &list[i]); err != nil {
			break
		}
		observed++
	}
	if err == nil && page != "" {
		d.print(styled.Text{{}, {Text: "The RPCs go on for the status page. An interrupt (Ctrl-C) ends them."}})
		<-ctx.Done()
	}
	d.mesh.traffic.stop()
	if failed := d.tally.failed; err == nil && failed > 0 {
		err = fmt.Errorf("%s failed after the steps were judged", faults.Count(failed, "RPC"))
	}
	d.print(d.summary(observed, len(list), time.Since(start), err))
	return err
}

// summary is printed last, when no RPC is under way.
func (d *demo) summary(observed, of int, took time.Duration, err error) styled.Text {
	style, steps := styled.Bad, fmt.Sprintf("Only %d of %d", observed, of)
	if observed == of {
		steps = fmt.Sprintf("All %d", of)
	}
	if err == nil {
		style = styled.Good
	}
	text := fmt.Sprintf("%s steps observed, in %.1f s. %s answered, %d failed", steps, took.Seconds(), faults.Count(d.tally.total, "RPC"), d.tally.failed)
	if d.tally.excused > 0 {
		text += fmt.Sprintf(" (and %d in flight when the backend stopped)", d.tally.excused)
	}
	return styled.Text{{}, {Style: style, Text: text + "."}}
}

// step makes one change, waits, and judges the RPCs since.
func (d *demo) step(ctx context.Context, number string, s *step) error {
	text := styled.Text{{}, {Style: styled.Heading, Text: "Step " + number + ": " + s.name}}
	text.AddAll(styled.Plain, s.text)
	d.print(text)
	ready := d.tally.begin(s.groups)
	err := s.do(ctx)
	if err == nil {
		d.tally.made()
		err = d.wait(ctx, ready)
	} else if ctx.Err() == nil {
		err = fmt.Errorf("could not be done: %w", err)
	} else {
		err = cutShort(ctx)
	}
	if err == nil {
		err = d.verdict()
	}
	if err != nil {
		return fmt.Errorf("step %s (%s) %w", number, s.name, err)
	}
	return nil
}

// wait returns when the step's time has passed and there are enough RPCs to judge it, or when patience ends.
func (d *demo) wait(ctx context.Context, ready <-chan struct{}) error {
	select {
	case <-time.After(d.stepTime):
	case <-ctx.Done():
		return cutShort(ctx)
	}
	select {
	case <-ready:
	case <-time.After(d.patience): // the verdict says what is missing
	case <-ctx.Done():
		return cutShort(ctx)
	}
	return nil
}

func cutShort(ctx context.Context) error { return fmt.Errorf("was cut short: %w", context.Cause(ctx)) }

// verdict prints what the step showed. It returns an error if that is not what was expected.
func (d *demo) verdict() error {
	t := &d.tally
	t.mu.Lock()
	defer t.mu.Unlock()
	text := append(styled.Text{{}}, table(t.counted)...)
	if found := strings.Join(t.faults(), "; "); found != "" {
		text.Add(styled.Bad, "NOT OBSERVED: %s.", found)
		d.print(text)
		return errors.New("was not observed: " + found)
	}
	for _, g := range t.groups {
		text.Add(styled.Plain, "Expected of %s: %s", g.title(), expected(g, t.counted.of("", g.methods...)))
	}
	text.Add(styled.Good, "Observed: %v from the change to the first RPC that shows it. %s answered.",
		t.shown.Sub(t.changed).Round(10*time.Microsecond), faults.Count(t.answered, "RPC"))
	d.print(text)
	return nil
}

// table has a row for each backend and a column for each method, and one for all of them, which is also drawn as a bar.
func table(c counts) (text styled.Text) {
	columns := []string{unaryCall, emptyCall, fullDuplexCall, alice, bob}
	header, last := fmt.Sprintf("%-10s %-8s", "backend", "cluster"), fmt.Sprintf("%-19s", "RPCs")
	for _, method := range columns {
		header += fmt.Sprintf("  %*s", max(7, len(method)), method)
		last += fmt.Sprintf("  %*d", max(7, len(method)), c.of("", method))
	}
	text.Add(styled.Heading, "%s      all", header)
	for _, b := range backends {
		row := fmt.Sprintf("%-10s %-8s", b.name, b.cluster)
		for _, method := range columns {
			share := "-"
			if c.of("", method) > 0 {
				share = fmt.Sprintf("%.1f%%", 100*c.share(b.name, method))
			}
			row += fmt.Sprintf("  %*s", max(7, len(method)), share)
		}
		all := c.share(b.name)
		row += fmt.Sprintf("  %6.1f%%  %s", 100*all, strings.Repeat("#", int(all*20+0.5)))
		text.Add(styled.Plain, "%s", strings.TrimRight(row, " "))
	}
	text.Add(styled.Plain, "%s  %7d", last, c.of(""))
	return text
}

// expected says what share each backend was to have of n RPCs.
func expected(g group, n int) string {
	var shares []string
	for _, b := range backends {
		if share := g.shares[b.name]; share > 0 {
			text := fmt.Sprintf("%s %.0f%%", b.name, 100*share)
			if allowed := tolerance(share, n); allowed > 0 {
				text = fmt.Sprintf("%s %.0f±%.1f%%", b.name, 100*share, 100*allowed)
			}
			shares = append(shares, text)
		}
	}
	return strings.Join(shares, ", ")
}

// print prints lines. A reader may stop reading, which is no error: the exit status reports the outcome.
func (d *demo) print(text styled.Text) { _ = terminal.Print(d.out, text) }
