package switchover_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/balancer/internal/switchover"
	"github.com/dynxds/dynxds/balancer/internal/tree"
)

// config is a kind and the rest of a configuration.
type config struct{ kind, detail string }

type fake struct {
	state   connectivity.State
	kind    string
	detail  string
	changed func()
	exits   int
	closed  bool
}

func (c *fake) Update(g config) { c.detail = g.detail }
func (c *fake) State() balancer.State {
	s := tree.Failing(errors.New(c.kind+c.detail), nil)
	s.ConnectivityState = c.state
	return s
}
func (c *fake) ExitIdle() { c.exits++ }
func (c *fake) Close()    { c.closed = true }

type fixture struct {
	policy  *switchover.Policy[config, string]
	built   []*fake
	changes int
}

func newFixture() *fixture {
	f := &fixture{}
	build := func(c config, changed func()) tree.Configured[config] {
		child := &fake{kind: c.kind, state: connectivity.Connecting, changed: changed}
		f.built = append(f.built, child)
		return child
	}
	f.policy = switchover.New(func(c config) string { return c.kind }, build, func() { f.changes++ })
	return f
}

// report reports a state of the i-th child that was built.
func (f *fixture) report(i int, s connectivity.State) {
	f.built[i].state = s
	f.built[i].changed()
}

func (f *fixture) expect(t *testing.T, when, serving string, closed ...int) {
	t.Helper()
	if _, err := f.policy.State().Picker.Pick(balancer.PickInfo{Ctx: context.Background()}); err.Error() != serving {
		t.Errorf("%s: %q serves, want %q", when, err, serving)
	}
	for i, c := range f.built {
		if c.closed != slices.Contains(closed, i) {
			t.Errorf("%s: child %d (%s) is closed: %v", when, i, c.kind, c.closed)
		}
	}
}

// gRFC A52: the policy of a cluster may change at any time. The old one serves until the new
// one is ready.
func TestOldPolicyServesUntilTheNewOneCan(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.policy.Update(config{"a", "1"})
	f.report(0, connectivity.Ready)
	f.policy.Update(config{"a", "2"})
	f.expect(t, "another configuration of the same kind", "a2")

	f.policy.Update(config{"b", "1"})
	f.expect(t, "b connects", "a2")
	f.report(1, connectivity.TransientFailure)
	f.expect(t, "b fails", "a2")
	before := f.changes
	f.report(1, connectivity.Connecting)
	if f.changes != before {
		t.Error("a change of the child that does not serve was passed on")
	}
	f.policy.Update(config{"b", "2"})
	f.policy.ExitIdle()
	f.report(1, connectivity.Ready)
	f.expect(t, "b is ready", "b2", 0)
	if f.changes != before+1 || f.built[1].exits != 1 || f.built[0].exits != 1 {
		t.Errorf("%d changes, want 1; %d and %d ExitIdle, want 1 each", f.changes-before, f.built[0].exits, f.built[1].exits)
	}
}

func TestPoliciesThatDoNotServeAreClosed(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.policy.Update(config{"a", ""})
	f.policy.Update(config{"b", ""})
	f.expect(t, "a never got ready", "b", 0)

	f.report(1, connectivity.Ready)
	f.policy.Update(config{"c", ""})
	f.policy.Update(config{"d", ""})
	f.expect(t, "c was replaced before it got ready", "b", 0, 2)
	f.policy.Update(config{"b", "again"})
	f.expect(t, "back to b", "bagain", 0, 2, 3)

	f.policy.Update(config{"e", ""})
	before := f.changes
	f.report(1, connectivity.TransientFailure)
	f.expect(t, "b fails while e connects", "e", 0, 1, 2, 3)
	if f.changes != before+1 {
		t.Errorf("%d changes, want 1", f.changes-before)
	}
	f.policy.Update(config{"f", ""})
	f.policy.Close()
	for i, c := range f.built {
		if !c.closed {
			t.Errorf("child %d (%s) outlived the policy", i, c.kind)
		}
	}
}

func TestIdlePolicyServes(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.policy.Update(config{"a", ""})
	f.report(0, connectivity.Ready)
	f.policy.Update(config{"ring", ""})
	f.report(1, connectivity.Idle)
	f.expect(t, "the ring is idle before any RPC", "ring", 0)
}
