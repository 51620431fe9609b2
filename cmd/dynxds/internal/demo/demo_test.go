package demo

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/cmdtest"
	"github.com/dynxds/dynxds/testutils"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The tests that run a demo are not parallel: it sets the environment.

// The real mesh, for the shortest time: all five steps are observed with RPCs of every kind, and nothing is left behind.
func TestRunObservesAllSteps(t *testing.T) {
	t.Setenv(bootstrapEnv, "/what/it/was")
	var out bytes.Buffer
	if err := runMesh(testutils.Context(t), Options{Duration: MinDuration}, patience, &out, steps); err != nil {
		t.Fatalf("run: %v\n%s", err, out.String())
	}
	for _, want := range []string{"\nAll 5 steps observed, in ", "\nStep 5 of 5: move a client\n", "cluster \"proxy\"\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, out.String())
		}
	}
	if got := os.Getenv(bootstrapEnv); got != "/what/it/was" {
		t.Errorf("%s is left as %q", bootstrapEnv, got)
	}
	_, path, _ := strings.Cut(out.String(), bootstrapEnv+"=")
	path, _, _ = strings.Cut(path, "\n")
	if _, err := os.Stat(filepath.Dir(path)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of the bootstrap file is left behind: %v", err)
	}
}

// A configuration that the client rejects: the step never shows, and the error has the
// step, the reason and the client's message.
func TestRunFailsIfAStepNeverShows(t *testing.T) {
	faulty := func(m *mesh) []step {
		two := steps(m)[:2]
		wrong := routes(2, 50, 50, "")
		wrong.VirtualHosts[0].Routes[0].GetRoute().GetWeightedClusters().Clusters = nil
		two[1].do = m.pushes(wrong)
		return two
	}
	var out bytes.Buffer
	err := runMesh(testutils.Context(t), Options{Duration: time.Second}, 5*time.Second, &out, faulty)
	if err == nil {
		t.Fatalf("run: no error\n%s", out.String())
	}
	const step = "step 2 of 2 (shift to 50/50) was not observed: no RPC has shown the change within "
	if !strings.HasPrefix(err.Error(), step) {
		t.Errorf("run: %v, want %q…", err, step)
	}
	if said := "the client rejected version 2 of type.googleapis.com/envoy.config.route.v3.RouteConfiguration: "; !strings.Contains(err.Error(), said) {
		t.Errorf("run: %v, want %q", err, said)
	}
	if want := "\nOnly 1 of 2 steps observed, in "; !strings.Contains(out.String(), want) {
		t.Errorf("the output lacks %q:\n%s", want, out.String())
	}
}

// firstStep returns the demo's first step alone, with calls around its change.
func firstStep(before func(*mesh), after func()) func(*mesh) []step {
	return func(m *mesh) []step {
		first := steps(m)[0]
		do := first.do
		first.do = func(ctx context.Context) error {
			before(m)
			defer after()
			return do(ctx)
		}
		return []step{first}
	}
}

func TestRunFailsIfRPCsFail(t *testing.T) {
	broken := errors.New("this backend is broken")
	flaky := firstStep(func(m *mesh) { m.backends[canary1].Fail(broken) }, func() {})
	err := runMesh(testutils.Context(t), Options{Duration: time.Second}, time.Second, io.Discard, flaky)
	cmdtest.ErrorHas(t, "run", err, broken.Error())
}

func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(testutils.Context(t))
	stopped := errors.New("stopped by hand")
	var out bytes.Buffer
	interrupted := firstStep(func(*mesh) {}, func() { cancel(stopped) })
	err := runMesh(ctx, Options{Duration: time.Hour}, time.Hour, &out, interrupted)
	if !errors.Is(err, stopped) {
		t.Errorf("run: %v, want %v", err, stopped)
	}
	if want := ", 0 failed.\n"; !strings.Contains(out.String(), want) {
		t.Errorf("interrupted RPCs count as failed:\n%s", out.String())
	}
}
