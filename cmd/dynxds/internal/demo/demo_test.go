package demo

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/cmdtest"
	"github.com/dynxds/dynxds/testutils"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// keeper keeps the events of the demo, and prints them.
type keeper struct {
	out       bytes.Buffer
	setUp     *setUp
	announced []*announcement
	progress  []*progress
	results   []*result
	summary   *summary
}

func (k *keeper) report(e event) {
	switch e := e.(type) {
	case *setUp:
		k.setUp = e
	case *announcement:
		k.announced = append(k.announced, e)
	case *progress:
		k.progress = append(k.progress, e)
	case *result:
		k.results = append(k.results, e)
	case *summary:
		k.summary = e
	}
	printer(&k.out, false)(e)
}

// The tests that run a demo are not parallel: it sets the environment.

// The real mesh, for the shortest time: all five steps are observed with RPCs of every kind,
// and nothing is left behind.
func TestRunObservesAllSteps(t *testing.T) { testAllSteps(t, Options{}) }

// The same over mTLS.
func TestRunObservesAllStepsOverTLS(t *testing.T) { testAllSteps(t, Options{TLS: true}) }

// The same with a relay between the clients and the control plane.
func TestRunObservesAllStepsThroughARelay(t *testing.T) { testAllSteps(t, Options{Relay: true}) }

func testAllSteps(t *testing.T, opts Options) {
	secure := opts.TLS
	opts.Duration = MinDuration
	t.Setenv(bootstrapEnv, "/what/it/was")
	k := &keeper{}
	securities := new(securities)
	watched := func(m *mesh) []step {
		for _, b := range m.backends {
			b.SetBehaviour(securities.watch)
		}
		return steps(m)
	}
	if err := runMesh(testutils.Context(t), opts, patience, k.report, watched); err != nil {
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
	if secured, plain := securities.secured.Load(), securities.plain.Load(); secure != (secured > 0) || secure == (plain > 0) {
		t.Errorf("%d RPCs over mTLS and %d over plaintext, want all of them over mTLS: %t", secured, plain, secure)
	}
	if says := strings.Contains(k.out.String(), "mTLS: clients spiffe://demo/client, backends spiffe://demo/NAME"); says != secure {
		t.Errorf("the output says mTLS: %t, want %t:\n%s", says, secure, k.out.String())
	}
	if says := strings.Contains(k.out.String(), "\n  relay          127.0.0.1:"); says != opts.Relay {
		t.Errorf("the output says that there is a relay: %t, want %t:\n%s", says, opts.Relay, k.out.String())
	}
	if got := os.Getenv(bootstrapEnv); got != "/what/it/was" {
		t.Errorf("%s is left as %q", bootstrapEnv, got)
	}
	if _, err := os.Stat(filepath.Dir(k.setUp.Bootstrap)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of the bootstrap file is left behind: %v", err)
	}
}

// securities counts the RPCs that backends get by the security of their connections.
type securities struct{ secured, plain atomic.Int64 }

// watch is the behaviour of a backend.
func (s *securities) watch(ctx context.Context, rpc testutils.RPC) error {
	p, _ := peer.FromContext(ctx)
	if info, ok := p.AuthInfo.(credentials.TLSInfo); ok && info.SPIFFEID.String() == "spiffe://demo/client" {
		s.secured.Add(1)
	} else {
		s.plain.Add(1)
	}
	return stampConfiguration(ctx, rpc)
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
	k := &keeper{}
	err := runMesh(testutils.Context(t), Options{Duration: time.Second}, 5*time.Second, k.report, faulty)
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
	err := runMesh(testutils.Context(t), Options{Duration: time.Second}, time.Second, (&keeper{}).report, flaky)
	cmdtest.ErrorHas(t, "run", err, broken.Error())
}

func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(testutils.Context(t))
	stopped := errors.New("stopped by hand")
	k := &keeper{}
	interrupted := firstStep(func(*mesh) {}, func() { cancel(stopped) })
	err := runMesh(ctx, Options{Duration: time.Hour}, time.Hour, k.report, interrupted)
	if !errors.Is(err, stopped) {
		t.Errorf("run: %v, want %v", err, stopped)
	}
	if k.summary.Failed != 0 {
		t.Errorf("%d RPCs failed, want interrupted ones not to count", k.summary.Failed)
	}
}

func TestRunRejectsATooShortDuration(t *testing.T) {
	var out bytes.Buffer
	err := Run(t.Context(), Options{Duration: time.Second}, &out)
	const want = "--duration 1s is too short: the 5 steps need 2s or more"
	if err == nil || err.Error() != want || out.Len() > 0 {
		t.Errorf("Run: %v and output %q, want %q and none", err, out.String(), want)
	}
}
