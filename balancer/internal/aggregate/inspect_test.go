package aggregate_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/dynxds/dynxds/balancer/internal/aggregate"
	"github.com/dynxds/dynxds/balancer/internal/cluster"
	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/xdstest"
)

func (f *fixture) inspect() (d inspect.Cluster) {
	synctest.Wait()
	f.Loop.Do(func() { d = f.Policy.Inspect() })
	return d
}

// expectMembers checks why each cluster is in use or not; those in use are marked with a star.
func (f *fixture) expectMembers(when, why string, want ...string) {
	f.T.Helper()
	d := f.inspect()
	var got []string
	for i, why := range livestate.MemberReasons(d.Members) {
		m := &d.Members[i]
		text := fmt.Sprintf("%s %s (%s, %s, %s)", m.Cluster.Name, why, m.Use.Status, m.Cluster.State, m.Cluster.Phase)
		if m.Use.InUse {
			text = "* " + text
		}
		got = append(got, text)
	}
	xdstest.Equal(f.T, when+": the members", want, got)
	xdstest.Equal(f.T, when+": the aggregate cluster says", why, livestate.Why(&d))
}

func TestInspectSaysWhichMemberIsInUse(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		if d := f.inspect(); d.Phase != inspect.PhaseResolving || d.State != inspect.Connecting || d.Kind != "aggregate" {
			t.Errorf("at first it is %+v", d)
		}
		f.update(in("B", "b:1"), in("C", "c:1"), in("D", "d:1"))
		f.expectMembers("B works", `cluster "B" is in use: ready`,
			`* B ready (ready, READY, serving)`,
			`C not started: cluster "B" is ready (not started, IDLE, dormant)`,
			`D not started: cluster "B" is ready (not started, IDLE, dormant)`)
		f.Network.Set("b:1", lbtest.Refused)
		f.expectMembers("B fails", `cluster "C" is in use: ready`,
			`B failed: dial b:1: connection refused; cluster "C" is in use (failed, TRANSIENT_FAILURE, serving)`,
			`* C ready (ready, READY, serving)`,
			`D not started: cluster "C" is ready (not started, IDLE, dormant)`)
		f.update(member{"B", cluster.Config{Err: errors.New("B was deleted")}}, in("D", "d:1"))
		f.expectMembers("B has no resources", `cluster "D" is in use: ready`,
			`B failed: B was deleted; cluster "D" is in use (failed, TRANSIENT_FAILURE, failed)`,
			`* D ready (ready, READY, serving)`)
		f.updateTo(&cluster.Config{Err: errors.New("a cycle")})
		f.expectMembers("an error", "a cycle")
		if d := f.inspect(); d.Phase != inspect.PhaseFailed || d.State != inspect.TransientFailure {
			t.Errorf("with an error it is %s and %s", d.Phase, d.State)
		}
	})
}

func TestDescribeBeforeTheFirstRPC(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		config  *cluster.Config
		members int
		phase   inspect.Phase
		why     string
	}{
		{new(cluster.Config), 0, inspect.PhaseResolving, "RPCs wait for the clusters under it"},
		{&cluster.Config{Err: errors.New("a cycle")}, 0, inspect.PhaseFailed, "a cycle"},
		{over(in("B", "b:1")), 1, inspect.PhaseDormant, "no RPC has needed the cluster yet"},
	} {
		d := aggregate.Describe("A", tc.config)
		if d.Phase != tc.phase || livestate.Why(&d) != tc.why || len(d.Members) != tc.members {
			t.Errorf("%+v is described as %+v", tc.config, d)
		}
	}
}
