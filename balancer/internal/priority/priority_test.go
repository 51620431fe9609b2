package priority_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/balancer/internal/priority"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	connecting = connectivity.Connecting
	ready      = connectivity.Ready
	idle       = connectivity.Idle
	failed     = connectivity.TransientFailure
)

// fakeChild is in the state that the test puts it in. Its configuration is its
// own name, with which its picker fails.
type fakeChild struct {
	f         *fixture
	name      string
	state     connectivity.State
	changed   func()
	updates   int
	idleExits int
}

func (c *fakeChild) Update(name string) {
	c.updates++
	if c.name == "" {
		c.name = name
		c.f.built = append(c.f.built, name)
		c.f.children[name] = c
		if s, ok := c.f.initial[name]; ok {
			c.state = s
		}
	}
}

func (c *fakeChild) State() balancer.State {
	s := tree.Failing(errors.New(c.name))
	s.ConnectivityState = c.state
	return s
}
func (c *fakeChild) ExitIdle() { c.idleExits++ }
func (c *fakeChild) Close()    { c.f.closed = append(c.f.closed, c.name); delete(c.f.children, c.name) }

type fixture struct {
	t        testing.TB
	loop     *tree.Loop
	policy   *priority.Policy[string]
	children map[string]*fakeChild
	// initial is the state in which a child is created; CONNECTING by default.
	initial map[string]connectivity.State
	built   []string
	closed  []string
	changes int
}

// newFixture closes the policy at the end of the test, after which the bubble checks that
// nothing is left.
func newFixture(t testing.TB) *fixture {
	f := &fixture{
		t:        t,
		loop:     tree.NewLoop(func() {}),
		children: make(map[string]*fakeChild),
		initial:  make(map[string]connectivity.State),
	}
	build := func(_ string, changed func()) tree.Configured[string] {
		return &fakeChild{f: f, state: connecting, changed: changed}
	}
	f.policy = priority.New(&tree.Env{Loop: f.loop}, build, func() { f.changes++ })
	t.Cleanup(f.close)
	return f
}

func test(t *testing.T, run func(*testing.T, *fixture)) { subtest(run)(t) }

func subtest(run func(*testing.T, *fixture)) func(*testing.T) { return lbtest.Subtest(newFixture, run) }

func (f *fixture) update(names ...string) {
	f.loop.Do(func() {
		var entries []priority.Entry[string]
		for _, n := range names {
			entries = append(entries, priority.Entry[string]{Name: n, Config: n})
		}
		f.policy.Update(entries)
	})
}

// set is the report of a child.
func (f *fixture) set(name string, s connectivity.State) {
	f.loop.Do(func() {
		c := f.children[name]
		c.state = s
		c.changed()
	})
}

// expect checks which child is in use, in which state, and which exist.
func (f *fixture) expect(when, current string, state connectivity.State, exist ...string) {
	f.t.Helper()
	synctest.Wait()
	f.loop.Do(func() {
		s := f.policy.State()
		_, err := s.Picker.Pick(balancer.PickInfo{})
		if err.Error() != current || s.ConnectivityState != state {
			f.t.Errorf("%s: %q is in use, in state %v; want %q, in state %v",
				when, err, s.ConnectivityState, current, state)
		}
		var have []string
		for name := range f.children {
			have = append(have, name)
		}
		slices.Sort(have)
		xdstest.Equal(f.t, when+": children that exist", exist, have)
	})
}

// passedOn returns how many changes the policy has passed on.
func (f *fixture) passedOn() (n int) {
	f.loop.Do(func() { n = f.changes })
	return n
}

func (f *fixture) close() { f.loop.Do(f.policy.Close) }

// TestScripts carries out the scripts of testdata, each line of which is a step and, behind "->", what is the case after it. Run with
// -update to write what is the case now.
func TestScripts(t *testing.T) {
	t.Parallel()
	const file = "testdata/priority.txt"
	lines := strings.Split(golden.Read(t, file), "\n")
	got := slices.Clone(lines)
	t.Cleanup(func() { golden.Check(t, file, strings.Join(got, "\n")) }) // after the subtests
	for i, line := range lines {
		name, ok := strings.CutPrefix(line, "== ")
		if !ok {
			continue
		}
		t.Run(name, subtest(func(_ *testing.T, f *fixture) {
			for j := i + 1; j < len(lines) && lines[j] != ""; j++ {
				step, _, _ := strings.Cut(lines[j], "->")
				step = strings.TrimSpace(step)
				if after := f.step(step); after != "" {
					got[j] = fmt.Sprintf("%-20s -> %s", step, after)
				}
			}
		}))
	}
}

// states are the states by name.
var states = map[string]connectivity.State{"CONNECTING": connecting, "READY": ready, "IDLE": idle, "TRANSIENT_FAILURE": failed}

// step carries out a step of a script, and returns what is the case then.
func (f *fixture) step(step string) (after string) {
	f.t.Helper()
	verb, rest, _ := strings.Cut(step, " ")
	words := strings.Fields(rest)
	switch verb {
	case "initially":
		for _, word := range words {
			name, state, _ := strings.Cut(word, "=")
			f.initial[name] = states[state]
		}
		return ""
	case "update":
		f.update(words...)
	case "refresh":
		name, config, _ := strings.Cut(rest, "=")
		f.loop.Do(func() { f.policy.Refresh([]priority.Entry[string]{{Name: name, Config: config}}) })
	case "wait":
		d, err := time.ParseDuration(rest)
		xdstest.NoError(f.t, err)
		time.Sleep(d)
	case "inspect":
		synctest.Wait()
		return strings.Join(f.uses(), "; ")
	default:
		state, ok := states[rest]
		if !ok {
			f.t.Fatalf("unknown step %q", step)
		}
		f.set(verb, state)
	}
	synctest.Wait()
	f.loop.Do(func() {
		s := f.policy.State()
		_, err := s.Picker.Pick(balancer.PickInfo{})
		after = fmt.Sprintf("%v %v: %s", err, s.ConnectivityState, strings.Join(slices.Sorted(maps.Keys(f.children)), " "))
	})
	return strings.TrimSpace(after)
}

// gRFC A56, "Configuration Updates": existing children are updated, also those
// that are not in use; others are not created.
func TestUpdateReachesExistingChildren(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		f.update("a", "b", "c")
		f.set("a", failed)
		f.set("b", ready)
		f.set("a", ready)
		f.update("a", "b", "c")
		if a, b := f.children["a"].updates, f.children["b"].updates; a != 2 || b != 2 {
			t.Errorf("children were updated %d and %d times by 2 configurations", a, b)
		}
		xdstest.Equal(t, "children built", []string{"a", "b"}, f.built)
	})
}

func TestChangesOfDeactivatedChildrenAreNotPassedOn(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		f.update("a", "b")
		f.set("a", failed)
		f.set("a", ready)
		before := f.changes
		f.set("b", connecting)
		f.set("b", ready)
		if f.changes != before {
			t.Error("a deactivated child's report was passed on")
		}
		f.set("a", ready)
		if f.changes != before+1 {
			t.Error("the report of the child in use was not passed on")
		}
	})
}

func TestExitIdleLeavesDeactivatedChildrenAlone(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		f.update("a", "b")
		f.set("a", failed)
		f.set("a", idle)
		f.loop.Do(f.policy.ExitIdle)
		if a, b := f.children["a"].idleExits, f.children["b"].idleExits; a != 1 || b != 0 {
			t.Errorf("ExitIdle reached the child in use %d times and the deactivated one %d times", a, b)
		}
	})
}

// gRFC A115, "Background": a control plane that keeps renaming localities must not fill the
// client with connections.
func TestRenamedChildrenAreNotKept(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		for i := range 100 {
			name := fmt.Sprint("p", i)
			f.initial[name] = ready
			f.update(name)
		}
		f.expect("after 100 renamings", "p99", ready, "p99")
	})
}

func TestCloseEndsChildrenAndTimers(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		f.update("a", "b")
		f.set("a", failed) // b's failover timer runs
		f.set("a", ready)  // and b's retention timer
		f.close()
		time.Sleep(time.Hour)
		f.loop.Do(func() {})
		slices.Sort(f.closed)
		if want := []string{"a", "b"}; !slices.Equal(f.built, want) || !slices.Equal(f.closed, want) {
			t.Errorf("children %v were built and %v closed, want each of %v once", f.built, f.closed, want)
		}
	})
}

// A child that is not needed yet costs nothing when its configuration changes.
func TestRefreshUpdatesOnlyExistingChildren(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		f.initial["a"], f.initial["b"] = ready, ready
		f.update("a", "b", "c")
		f.loop.Do(func() {
			f.policy.Refresh([]priority.Entry[string]{{Name: "a", Config: "a"}, {Name: "b", Config: "b"}, {Name: "unknown"}})
		})
		xdstest.Equal(t, "updates of the child in use", 2, f.children["a"].updates)
		xdstest.Equal(t, "children built", []string{"a"}, f.built)
		f.set("a", failed)
		xdstest.Equal(t, "updates of the child that was needed (one, with the latest configuration)",
			1, f.children["b"].updates)
	})
}

// uses describes the priorities: when times are, in seconds since the start of the bubble.
func (f *fixture) uses() (all []string) {
	start := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	f.loop.Do(func() {
		for _, d := range f.policy.Inspect() {
			u := d.Use
			text := fmt.Sprintf("%s %s %v", d.Entry.Config, u.Status, d.State)
			if u.InUse {
				text = "* " + text
			}
			for _, at := range []struct {
				name string
				time time.Time
			}{{"since", u.Since}, {"failover", u.FailoverEnd}, {"deactivated", u.Deactivated}, {"until", u.RetentionEnd}} {
				if !at.time.IsZero() {
					text += fmt.Sprintf(" %s %.0f", at.name, at.time.Sub(start).Seconds())
				}
			}
			if u.TimedOut {
				text += " timed out"
			}
			if (d.Policy == nil) != u.Since.IsZero() {
				f.t.Errorf("%s: its policy is %v", text, d.Policy)
			}
			all = append(all, text)
		}
	})
	return all
}

// What changes the choice is passed on, whichever child it is about.
func TestChangesOfTheChoiceArePassedOn(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		f.update("a", "b")
		changes := f.passedOn()
		time.Sleep(priority.FailoverTimeout)
		synctest.Wait()
		f.set("b", ready)
		changed := f.passedOn()
		f.set("b", failed)
		if last := f.passedOn(); changed == changes || last == changed {
			t.Errorf("changes were passed on %d, %d and %d times", changes, changed, last)
		}
	})
}
