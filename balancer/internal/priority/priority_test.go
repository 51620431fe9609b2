package priority_test

import (
	"errors"
	"fmt"
	"slices"
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

// step is something that happens, and what is in use after it.
type step struct {
	when    string
	child   string             // the child that reports …
	reports connectivity.State // … this state
	names   []string           // or an update, with these names
	wait    time.Duration      // or time that passes
	current string
	state   connectivity.State
	exist   []string
}

// gRFC A56, by heading, and gRFC A115, "Proposal".
func TestPriority(t *testing.T) {
	t.Parallel()
	abc := []string{"a", "b", "c"}
	start := step{when: "at first", names: abc, current: "a", state: connecting, exist: []string{"a"}}
	for _, tc := range []struct {
		name    string
		initial map[string]connectivity.State
		steps   []step
	}{
		{name: "Child Lifetime Management: a lower priority is created only when needed", steps: []step{
			start,
			{when: "a is ready", child: "a", reports: ready, current: "a", state: ready, exist: []string{"a"}},
			{when: "time passes", wait: time.Hour, current: "a", state: ready, exist: []string{"a"}},
		}},
		{name: "Algorithm: a failed child gives way to the next", steps: []step{
			start,
			{when: "a failed", child: "a", reports: failed, current: "b", state: connecting, exist: []string{"a", "b"}},
			{when: "b is ready", child: "b", reports: ready, current: "b", state: ready, exist: []string{"a", "b"}},
		}},
		{name: "Connectivity State Tracking: a child has 10 s to connect", steps: []step{
			start,
			{when: "9.9 s later", wait: 9900 * time.Millisecond, current: "a", state: connecting, exist: []string{"a"}},
			{when: "10.1 s later", wait: 200 * time.Millisecond, current: "b", state: connecting, exist: []string{"a", "b"}},
			{when: "20.1 s later", wait: 10 * time.Second, current: "c", state: connecting, exist: abc},
			{when: "30.1 s later", wait: 10 * time.Second, current: "a", state: connecting, exist: abc},
		}},
		{name: "Algorithm: the first child that is ready is used, and the others wait", steps: []step{
			start,
			{when: "a failed", child: "a", reports: failed, current: "b", state: connecting, exist: []string{"a", "b"}},
			{when: "b is ready", child: "b", reports: ready, current: "b", state: ready, exist: []string{"a", "b"}},
			{when: "a is back", child: "a", reports: ready, current: "a", state: ready, exist: []string{"a", "b"}},
			{when: "15 min later", wait: 15*time.Minute + time.Second, current: "a", state: ready, exist: []string{"a"}},
		}},
		{name: "Child Lifetime Management: a deactivated child that is needed again stays", steps: []step{
			start,
			{when: "a failed", child: "a", reports: failed, current: "b", state: connecting, exist: []string{"a", "b"}},
			{when: "b is ready", child: "b", reports: ready, current: "b", state: ready, exist: []string{"a", "b"}},
			{when: "a is back", child: "a", reports: ready, current: "a", state: ready, exist: []string{"a", "b"}},
			{when: "14 min later", wait: 14 * time.Minute, current: "a", state: ready, exist: []string{"a", "b"}},
			{when: "a failed again", child: "a", reports: failed, current: "b", state: ready, exist: []string{"a", "b"}},
			{when: "an hour later", wait: time.Hour, current: "b", state: ready, exist: []string{"a", "b"}},
		}},
		{name: "Algorithm: IDLE is as good as READY", steps: []step{
			start,
			{when: "a failed", child: "a", reports: failed, current: "b", state: connecting, exist: []string{"a", "b"}},
			{when: "a is idle", child: "a", reports: idle, current: "a", state: idle, exist: []string{"a", "b"}},
			{when: "15 min later", wait: 15*time.Minute + time.Second, current: "a", state: idle, exist: []string{"a"}},
		}},
		{name: "Connectivity State Tracking: a child that worked has 10 s again", steps: []step{
			start,
			{when: "a is ready", child: "a", reports: ready, current: "a", state: ready, exist: []string{"a"}},
			{when: "a connects", child: "a", reports: connecting, current: "a", state: connecting, exist: []string{"a"}},
			{when: "9 s later", wait: 9 * time.Second, current: "a", state: connecting, exist: []string{"a"}},
			{when: "a reports that it still connects", child: "a", reports: connecting, current: "a", state: connecting, exist: []string{"a"}},
			{when: "11 s after it began", wait: 2 * time.Second, current: "b", state: connecting, exist: []string{"a", "b"}},
		}},
		{name: "Connectivity State Tracking: a child that failed has no time again", steps: []step{
			start,
			{when: "a failed", child: "a", reports: failed, current: "b", state: connecting, exist: []string{"a", "b"}},
			{when: "a connects", child: "a", reports: connecting, current: "b", state: connecting, exist: []string{"a", "b"}},
			{when: "b failed", child: "b", reports: failed, current: "c", state: connecting, exist: abc},
			{when: "c failed", child: "c", reports: failed, current: "a", state: connecting, exist: abc},
		}},
		{name: "Algorithm: all failed, the last one's errors are seen", steps: []step{
			start,
			{when: "a failed", child: "a", reports: failed, current: "b", state: connecting, exist: []string{"a", "b"}},
			{when: "b failed", child: "b", reports: failed, current: "c", state: connecting, exist: abc},
			{when: "c failed", child: "c", reports: failed, current: "c", state: failed, exist: abc},
			{when: "b is back", child: "b", reports: ready, current: "b", state: ready, exist: abc},
		}},
		{name: "Algorithm: a child that fails when created is passed over at once",
			initial: map[string]connectivity.State{"a": failed, "b": failed}, steps: []step{
				{when: "at first", names: abc, current: "c", state: connecting, exist: abc},
			}},
		{name: "Algorithm: an empty list fails", steps: []step{
			start,
			{when: "nothing is left", names: []string{}, current: "no priority is configured", state: failed},
		}},
		{name: "Configuration: a child that moves up keeps its state", steps: []step{
			start,
			{when: "a failed", child: "a", reports: failed, current: "b", state: connecting, exist: []string{"a", "b"}},
			{when: "b is ready", child: "b", reports: ready, current: "b", state: ready, exist: []string{"a", "b"}},
			{when: "b is the first", names: []string{"b", "d"}, current: "b", state: ready, exist: []string{"b"}},
		}},
		{name: "Configuration: a new child before the one in use gets its time", steps: []step{
			start,
			{when: "a is ready", child: "a", reports: ready, current: "a", state: ready, exist: []string{"a"}},
			{when: "z is first", names: []string{"z", "a"}, current: "z", state: connecting, exist: []string{"a", "z"}},
			{when: "z failed", child: "z", reports: failed, current: "a", state: ready, exist: []string{"a", "z"}},
		}},
		{name: "A115: a child that is removed is closed at once, also the one in use", steps: []step{
			start,
			{when: "a is ready", child: "a", reports: ready, current: "a", state: ready, exist: []string{"a"}},
			{when: "a is removed", names: []string{"b"}, current: "b", state: connecting, exist: []string{"b"}},
			{when: "a is added", names: []string{"a", "b"}, current: "a", state: connecting, exist: []string{"a", "b"}},
		}},
		{name: "A115: a deactivated child that is removed is closed at once", steps: []step{
			start,
			{when: "a failed", child: "a", reports: failed, current: "b", state: connecting, exist: []string{"a", "b"}},
			{when: "b is ready", child: "b", reports: ready, current: "b", state: ready, exist: []string{"a", "b"}},
			{when: "a is back", child: "a", reports: ready, current: "a", state: ready, exist: []string{"a", "b"}},
			{when: "b is removed", names: []string{"a", "c"}, current: "a", state: ready, exist: []string{"a"}},
			{when: "15 min later", wait: 15*time.Minute + time.Second, current: "a", state: ready, exist: []string{"a"}},
		}},
	} {
		t.Run(tc.name, subtest(func(t *testing.T, f *fixture) {
			f.initial = tc.initial
			for _, s := range tc.steps {
				switch {
				case s.child != "":
					f.set(s.child, s.reports)
				case s.names != nil:
					f.update(s.names...)
				default:
					time.Sleep(s.wait)
				}
				f.expect(s.when, s.current, s.state, s.exist...)
			}
		}))
	}
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

// The facts about each priority, through a failover and back (gRFC A56).
func TestInspect(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		expect := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			xdstest.Equal(t, when, want, f.uses())
		}
		f.update("a", "b")
		expect("at first", "* a connecting CONNECTING since 0 failover 10", "b not started IDLE")
		time.Sleep(10 * time.Second)
		expect("a timed out", "a connecting CONNECTING since 0 failover 10 timed out", "* b connecting CONNECTING since 10 failover 20")
		time.Sleep(time.Second)
		f.set("b", ready)
		f.set("a", failed)
		expect("a failed", "a failed TRANSIENT_FAILURE since 11", "* b ready READY since 11")
		time.Sleep(time.Second)
		f.set("a", connecting)
		f.set("a", connecting)
		expect("a connects again", "a connecting CONNECTING since 12", "* b ready READY since 11")
		f.set("a", idle)
		expect("a is idle", "* a idle IDLE since 12", "b ready READY since 11 deactivated 12 until 912")
		time.Sleep(time.Second)
		f.update("a", "b", "c")
		expect("c is new", "* a idle IDLE since 12", "b ready READY since 11 deactivated 12 until 912", "c not started IDLE")
		f.set("a", connecting)
		expect("a that worked has time to connect again",
			"* a connecting CONNECTING since 13 failover 23", "b ready READY since 11 deactivated 12 until 912", "c not started IDLE")
		time.Sleep(10 * time.Second)
		expect("b is activated", "a connecting CONNECTING since 13 failover 23 timed out", "* b ready READY since 11", "c not started IDLE")
		f.set("a", ready)
		time.Sleep(priority.RetentionTime)
		expect("b is gone", "* a ready READY since 23", "b not started IDLE", "c not started IDLE")
		f.loop.Do(func() { f.policy.Refresh([]priority.Entry[string]{{Name: "b", Config: "new"}}) })
		expect("another configuration", "* a ready READY since 23", "new not started IDLE", "c not started IDLE")
	})
}

// A child that worked in between has all of its time to connect again. What changes the choice is
// passed on, whichever child it is about.
func TestFailoverTimerBeginsAnew(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		f.update("a", "b")
		time.Sleep(5 * time.Second)
		f.set("a", ready)
		time.Sleep(3 * time.Second)
		f.set("a", connecting)
		time.Sleep(5 * time.Second)
		f.set("a", connecting) // It says so again, and gets no more time.
		time.Sleep(4 * time.Second)
		f.expect("17 s after the start", "a", connecting, "a")
		changes := f.passedOn()
		time.Sleep(time.Second)
		f.expect("10 s after it was connected", "b", connecting, "a", "b")
		f.set("b", ready)
		changed := f.passedOn()
		f.set("b", failed)
		f.expect("b fails", "a", connecting, "a", "b")
		if last := f.passedOn(); changed == changes || last == changed {
			t.Errorf("changes were passed on %d, %d and %d times", changes, changed, last)
		}
	})
}
