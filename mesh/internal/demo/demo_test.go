package demo

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/testutils"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The tests that run a demo are not parallel: it sets the environment.

// quick is a demo whose steps take no longer than they have to.
func quick(t *testing.T, out io.Writer) *demo {
	t.Setenv("GRPC_XDS_BOOTSTRAP", "") // which the test restores
	return &demo{out: out, patience: patience}
}

// The real mesh: all five steps are observed with RPCs of every kind, and nothing is left behind.
func TestRunObservesAllSteps(t *testing.T) {
	var out bytes.Buffer
	if err := quick(t, &out).run(testutils.Context(t), "", (*demo).steps); err != nil {
		t.Fatalf("run: %v\n%s", err, out.String())
	}
	for _, want := range []string{"\n5 of 5 steps observed, in ", "\nStep 5 of 5: move a client\n", "cluster proxy\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, out.String())
		}
	}
	if _, err := os.Stat(os.Getenv("GRPC_XDS_BOOTSTRAP")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the bootstrap file is left behind: %v", err)
	}
}

// A configuration that the client rejects: the step never shows, the error has the step and the reason, and no later step begins.
func TestRunFailsIfAStepNeverShows(t *testing.T) {
	faulty := func(d *demo) []step {
		three := d.steps()[:3]
		wrong := routes("2", 50, 50)
		wrong.VirtualHosts[0].Routes[0].GetRoute().GetWeightedClusters().Clusters = nil
		three[1].do = func(context.Context) error {
			d.patience = time.Second
			return d.mesh.push(wrong)
		}
		return three
	}
	var out bytes.Buffer
	err := quick(t, &out).run(testutils.Context(t), "", faulty)
	const step = "step 2 of 3 (shift to 50/50) was not observed: 0 of all RPCs show the change"
	if err == nil || !strings.HasPrefix(err.Error(), step) {
		t.Errorf("run: %v, want %q…", err, step)
	}
	for _, want := range []string{"\nNOT OBSERVED: 0 of all RPCs", "\n1 of 3 steps observed, in "} {
		if !strings.Contains(out.String(), want) || strings.Contains(out.String(), "Step 3") {
			t.Errorf("the output lacks %q, or has a third step:\n%s", want, out.String())
		}
	}
}

// firstStep returns the demo's first step alone, with calls around its change.
func firstStep(before func(*mesh), after func() error) func(*demo) []step {
	return func(d *demo) []step {
		first := d.steps()[0]
		do := first.do
		first.do = func(ctx context.Context) error {
			before(d.mesh)
			return errors.Join(do(ctx), after())
		}
		return []step{first}
	}
}

func TestRunFailsIfRPCsFail(t *testing.T) {
	broken := errors.New("this backend is broken")
	flaky := firstStep(func(m *mesh) { m.backends[canary1].Fail(broken) }, func() error { return nil })
	d := quick(t, io.Discard)
	d.patience = time.Second
	cmdtest.ErrorHas(t, "run", d.run(testutils.Context(t), "", flaky), broken.Error())
}

func TestRunEndsWhenAChangeCannotBeMade(t *testing.T) {
	broken := errors.New("no change today")
	impossible := firstStep(func(*mesh) {}, func() error { return broken })
	err := quick(t, io.Discard).run(testutils.Context(t), "", impossible)
	cmdtest.ErrorHas(t, "run", err, "step 1 of 1 (split 90/10) could not be done: "+broken.Error())
}

func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(testutils.Context(t))
	stopped := errors.New("stopped by hand")
	var out bytes.Buffer
	interrupted := firstStep(func(*mesh) {}, func() error { cancel(stopped); return nil })
	d := quick(t, &out)
	d.stepTime, d.patience = time.Hour, time.Hour
	err := d.run(ctx, "", interrupted)
	if !errors.Is(err, stopped) || !strings.Contains(err.Error(), "step 1 of 1 (split 90/10) was cut short") {
		t.Errorf("run: %v, want step 1 cut short: %v", err, stopped)
	}
	if want := ", 0 failed "; !strings.Contains(out.String(), want) {
		t.Errorf("interrupted RPCs count as failed:\n%s", out.String())
	}
}

// afterSteps is called when the demo says that its RPCs go on.
type afterSteps func()

func (f afterSteps) Write(text []byte) (int, error) {
	if bytes.Contains(text, []byte("The RPCs go on ")) {
		f()
	}
	return len(text), nil
}

// With a page the RPCs go on after the steps, until the context ends. One that fails then fails the run.
func TestRunFailsForLateFailures(t *testing.T) {
	ctx, cancel := context.WithCancel(testutils.Context(t))
	defer cancel()
	d := quick(t, nil)
	d.out = afterSteps(func() {
		d.mesh.record(rpc{of: emptyCall, err: errors.New("late")})
		cancel()
	})
	err := d.run(ctx, "127.0.0.1:0", firstStep(func(*mesh) {}, func() error { return nil }))
	cmdtest.ErrorHas(t, "run", err, "1 RPC failed after the steps were judged")
}
