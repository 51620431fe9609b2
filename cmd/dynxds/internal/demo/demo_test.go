package demo

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dynxds/dynxds/testutils"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// keeper keeps what the demo tells, and prints it.
type keeper struct {
	out     bytes.Buffer
	setUp   *setUp
	results []*result
	summary *summary
}

func (k *keeper) tell(e event) {
	switch e := e.(type) {
	case *setUp:
		k.setUp = e
	case *result:
		k.results = append(k.results, e)
	case *summary:
		k.summary = e
	}
	printer(&k.out, false)(e)
}

// The tests that run a demo are not parallel: it sets the environment.

// Given the real mesh, when the demo runs for the shortest time it takes, then
// all five steps are observed, nothing is left behind, and RPCs of every kind
// were made.
func TestRunObservesAllSteps(t *testing.T) {
	t.Setenv(bootstrapEnv, "/what/it/was")
	k := &keeper{}
	if err := runMesh(testutils.Context(t), MinDuration, patience, k.tell, steps); err != nil {
		t.Fatalf("Run: %v\n%s", err, k.out.String())
	}
	if len(k.results) != stepCount || k.summary.Observed != stepCount {
		t.Errorf("%d steps judged, %d observed, want %d", len(k.results), k.summary.Observed, stepCount)
	}
	for _, r := range k.results {
		if r.Arrived <= 0 {
			t.Errorf("step %d: the change arrived after %v, want more than 0", r.Step, r.Arrived)
		}
		for _, m := range []string{unaryCall, emptyCall, fullDuplexCall} {
			if r.Counts.of("", m) == 0 {
				t.Errorf("step %d: no RPC of %s was counted", r.Step, m)
			}
		}
	}
	if got := os.Getenv(bootstrapEnv); got != "/what/it/was" {
		t.Errorf("%s is left as %q", bootstrapEnv, got)
	}
	if _, err := os.Stat(k.setUp.Bootstrap); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the bootstrap file is left behind: %v", err)
	}
}

// Given a configuration that the client has to reject, so that its step never
// shows, then the demo fails and says which step, why, and what the client said.
func TestRunFailsIfAStepNeverShows(t *testing.T) {
	faulty := func(m *mesh, start func()) []step {
		wrong := shift(m)
		wrong.do = func(context.Context) error {
			routes := routes(2, 50, 50, "")
			routes.VirtualHosts[0].Routes[0].GetRoute().GetWeightedClusters().Clusters = nil
			return m.push(routes)
		}
		return []step{split(m, start), wrong}
	}
	k := &keeper{}
	err := runMesh(testutils.Context(t), time.Second, 5*time.Second, k.tell, faulty)
	if err == nil {
		t.Fatalf("run: no error\n%s", k.out.String())
	}
	const step = "step 2 of 2 (shift to 50/50) was not observed: no RPC has shown the change within "
	if !strings.HasPrefix(err.Error(), step) {
		t.Errorf("run: %v, want %q…", err, step)
	}
	if said := "the client rejected version 2 of type.googleapis.com/envoy.config.route.v3.RouteConfiguration: "; !strings.Contains(err.Error(), said) {
		t.Errorf("run: %v, want %q", err, said)
	}
	if k.summary.Observed != 1 || k.summary.Failed != 0 {
		t.Errorf("%d steps observed, %d RPCs failed, want 1 and 0", k.summary.Observed, k.summary.Failed)
	}
}

// Given a backend that fails RPCs at random, then the demo does not pass.
func TestRunFailsIfRPCsFail(t *testing.T) {
	broken := errors.New("this backend is broken")
	flaky := func(m *mesh, start func()) []step {
		first := split(m, func() {
			m.backends[canary1].Fail(broken)
			start()
		})
		return []step{first}
	}
	err := runMesh(testutils.Context(t), time.Second, time.Second, (&keeper{}).tell, flaky)
	if err == nil || !strings.Contains(err.Error(), broken.Error()) {
		t.Errorf("run: %v, want the RPCs' error", err)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(testutils.Context(t))
	stopped := errors.New("stopped by hand")
	k := &keeper{}
	err := runMesh(ctx, time.Hour, time.Hour, k.tell, func(m *mesh, start func()) []step {
		return []step{split(m, func() { start(); cancel(stopped) })}
	})
	if !errors.Is(err, stopped) {
		t.Errorf("run: %v, want %v", err, stopped)
	}
	if k.summary.Failed != 0 {
		t.Errorf("%d RPCs failed, want those that were cut short not to count", k.summary.Failed)
	}
}

func TestRunRejectsATooShortDuration(t *testing.T) {
	var out bytes.Buffer
	err := Run(t.Context(), Options{Duration: time.Second}, &out)
	const want = "--duration 1s is too short: the 5 steps need 2s or more"
	if err == nil || err.Error() != want {
		t.Errorf("Run: %v, want %q", err, want)
	}
	if out.Len() > 0 {
		t.Errorf("it printed %q, want nothing", out.String())
	}
}
