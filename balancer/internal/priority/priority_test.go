package priority_test

import (
	"context"
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
	s := tree.Failing(errors.New(c.name), nil)
	s.ConnectivityState = c.state
	return s
}
func (c *fakeChild) ExitIdle() { c.idleExits++ }
func (c *fakeChild) Close()    { c.f.closed = append(c.f.closed, c.name); delete(c.f.children, c.name) }

type fixture struct {
	t        testing.TB
	loop     *tree.Loop
	policy   *priority.Policy[string]
	names    []string
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

func (f *fixture) update(names ...string) {
	f.loop.Do(func() {
		var entries []priority.Entry[string]
		f.names = names
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

func (f *fixture) close() { f.loop.Do(f.policy.Close) }

// TestScripts carries out the scripts of testdata, each line of which is a step and, behind "->", what is the case after it. Run with
// -update to write what is the case now: the child in use, the state, the children that exist, and whether the step was passed on
// as a change. "exit-idle" and "updates" are followed by how often that reached each child.
func TestScripts(t *testing.T) {
	golden.Scripts(t, "testdata/*.txt", 20, func(t testing.TB) func(string) string { return newFixture(t).step })
}

// states are the states by name.
var states = map[string]connectivity.State{"CONNECTING": connecting, "READY": ready, "IDLE": idle, "TRANSIENT_FAILURE": failed}

// step carries out a step of a script, and returns what is the case then.
func (f *fixture) step(step string) (after string) {
	f.t.Helper()
	verb, rest, _ := strings.Cut(step, " ")
	words := strings.Fields(rest)
	var before int
	f.loop.Do(func() { before = f.changes })
	switch verb {
	case "exit-idle":
		f.loop.Do(f.policy.ExitIdle)
		return f.each(func(c *fakeChild) int { return c.idleExits })
	case "updates":
		return f.each(func(c *fakeChild) int { return c.updates })
	case "close":
		f.close()
		time.Sleep(time.Hour)
		f.loop.Do(func() {})
		slices.Sort(f.closed)
		return fmt.Sprintf("built %v, closed %v", f.built, f.closed)
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
		_, err := s.Picker.Pick(balancer.PickInfo{Ctx: context.Background()})
		after = fmt.Sprintf("%v %v: %s", err, s.ConnectivityState, strings.Join(slices.Sorted(maps.Keys(f.children)), " "))
		if f.changes > before {
			after += ", changed"
		}
	})
	return strings.TrimSpace(after)
}

// each returns a number of each child that exists.
func (f *fixture) each(of func(*fakeChild) int) (after string) {
	f.loop.Do(func() {
		for _, name := range slices.Sorted(maps.Keys(f.children)) {
			after += fmt.Sprintf("%s %d ", name, of(f.children[name]))
		}
	})
	return strings.TrimSpace(after)
}

// uses describes the priorities: when times are, in seconds since the start of the bubble.
func (f *fixture) uses() (all []string) {
	start := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	f.loop.Do(func() {
		for i, name := range f.names {
			u, policy := f.policy.Inspect(i)
			text := fmt.Sprintf("%s %s", name, u.Status)
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
			if (policy == nil) != u.Since.IsZero() {
				f.t.Errorf("%s: its policy is %v", text, policy)
			}
			all = append(all, text)
		}
	})
	return all
}
