//lint:file-ignore SA1019 The tests call what gRPC's policies call.

package leaf_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/experimental/balancer/weight"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"

	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/balancer/internal/leaf"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

func TestMain(m *testing.M) {
	balancer.Register(spyBuilder{})
	balancer.Register(needyBuilder{})
	goleak.VerifyTestMain(m)
}

// spy is a policy that the test controls.
type spy struct {
	cc      balancer.ClientConn
	updates []balancer.ClientConnState
	refuse  error
	// readyOnUpdate has it report READY in the course of an update.
	readyOnUpdate bool
	// inside counts the calls in progress.
	inside atomic.Int32
	// reentered gets a value if two calls overlap.
	reentered chan struct{}
	// whileInside, if not nil, runs in ExitIdle.
	whileInside func()
	closed      bool
	idleExits   int
}

type spyBuilder struct{}

// built hands each new spy to the test that caused it.
var built = make(chan *spy, 1)

func (spyBuilder) Name() string { return "spy" }
func (spyBuilder) Build(cc balancer.ClientConn, _ balancer.BuildOptions) balancer.Balancer {
	s := &spy{cc: cc, reentered: make(chan struct{}, 1)}
	built <- s
	return s
}

func (s *spy) enter() func() {
	if s.inside.Add(1) > 1 {
		select {
		case s.reentered <- struct{}{}:
		default:
		}
	}
	return func() { s.inside.Add(-1) }
}

func (s *spy) UpdateClientConnState(c balancer.ClientConnState) error {
	defer s.enter()()
	s.updates = append(s.updates, c)
	if s.readyOnUpdate {
		s.cc.UpdateState(tree.Waiting(connectivity.Ready))
	}
	return s.refuse
}
func (s *spy) ResolverError(error) {}
func (s *spy) UpdateSubConnState(balancer.SubConn, balancer.SubConnState) {
	defer s.enter()()
}
func (s *spy) ExitIdle() {
	defer s.enter()()
	s.idleExits++
	if s.whileInside != nil {
		s.whileInside()
	}
}
func (s *spy) Close() { defer s.enter()(); s.closed = true }

// needyBuilder is a policy that has no configuration by default.
type needyBuilder struct{ spyBuilder }

func (needyBuilder) Name() string { return "needy" }
func (needyBuilder) ParseConfig(json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
	return nil, errors.New("field shape is required")
}

// fixture is a leaf under test. The tests of this package share the spy's
// builder and therefore do not run in parallel.
type fixture struct {
	*lbtest.Bed
	leaf    *leaf.Policy
	spy     *spy
	changes int
}

func newSpied(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{Bed: lbtest.NewBed(t)}
	f.Loop.Do(func() { f.leaf = leaf.New(f.Env, "spy", leaf.ForLocality, func() { f.changes++ }) })
	f.spy = <-built
	t.Cleanup(func() { f.Loop.Do(f.leaf.Close) })
	return f
}

func (f *fixture) update(addr string) {
	f.Loop.Do(func() { f.leaf.Update([]xdsresource.Endpoint{endpoint(addr, 1, 0)}, "") })
}

func endpoint(addr string, weight uint32, h xdsresource.HealthStatus) xdsresource.Endpoint {
	return xdsresource.Endpoint{Address: addr, Weight: weight, Health: h}
}

// gRFC A27, "ClusterLoadAssignment Proto": endpoints that are neither HEALTHY
// nor UNKNOWN are ignored.
func TestPolicyGetsUsableEndpointsWithTheirWeights(t *testing.T) {
	f := newSpied(t)
	f.Loop.Do(func() {
		f.leaf.Update([]xdsresource.Endpoint{
			endpoint("1.1.1.1:1", 1, xdsresource.HealthUnknown),
			endpoint("1.1.1.1:2", 1, xdsresource.HealthUnhealthy),
			endpoint("1.1.1.1:3", 7, xdsresource.HealthHealthy),
			endpoint("1.1.1.1:4", 1, xdsresource.HealthDraining),
			endpoint("1.1.1.1:5", 1, xdsresource.HealthTimeout),
			endpoint("1.1.1.1:6", 1, xdsresource.HealthDegraded),
			endpoint("1.1.1.1:7", 1, xdsresource.HealthHealthy),
		}, "")
	})
	type seen struct {
		Addr   string
		Weight uint32
	}
	var got []seen
	for _, e := range f.spy.updates[0].ResolverState.Endpoints {
		if len(e.Addresses) != 1 {
			t.Fatalf("endpoint has addresses %v, want one", e.Addresses)
		}
		got = append(got, seen{e.Addresses[0].Addr, weight.FromEndpoint(e).Weight})
	}
	want := []seen{{"1.1.1.1:1", 1}, {"1.1.1.1:3", 7}, {"1.1.1.1:7", 1}}
	xdstest.Equal(t, "endpoints that the policy got", want, got)
}

func TestUnchangedEndpointsDoNotReachThePolicy(t *testing.T) {
	f := newSpied(t)
	for range 3 {
		f.update("1.1.1.1:1")
	}
	f.update("1.1.1.1:2")
	xdstest.Equal(t, "how often the policy was updated by 2 different sets of endpoints",
		2, len(f.spy.updates))
}

func TestLeafThatCannotBeBuilt(t *testing.T) {
	for _, tc := range []struct{ policy, want string }{
		{"no_such_policy", `load-balancing policy "no_such_policy" is not registered with gRPC`},
		{"needy", `load-balancing policy "needy" does not take the configuration {}: field shape is required`},
	} {
		t.Run(tc.policy, func(t *testing.T) {
			b := lbtest.NewBed(t)
			b.Loop.Do(func() {
				l := leaf.New(b.Env, tc.policy, leaf.ForLocality, func() {})
				l.Update([]xdsresource.Endpoint{endpoint("1.1.1.1:1", 1, 0)}, "")
				s := l.State()
				_, err := s.Picker.Pick(balancer.PickInfo{Ctx: context.Background()})
				if s.ConnectivityState != connectivity.TransientFailure || err == nil || err.Error() != tc.want {
					t.Errorf("leaf is %v with error %q, want TRANSIENT_FAILURE with %q", s.ConnectivityState, err, tc.want)
				}
				l.ExitIdle()
				l.Close()
			})
			select {
			case <-built:
			default:
			}
		})
	}
}

func TestReportsArriveAsEvents(t *testing.T) {
	f := newSpied(t)
	ready := balancer.State{ConnectivityState: connectivity.Ready, Picker: base.NewErrPicker(errors.New("the picker"))}
	var during connectivity.State
	f.Loop.Do(func() {
		for range 5 {
			f.spy.cc.UpdateState(tree.Waiting(connectivity.Connecting))
		}
		f.spy.cc.UpdateState(ready)
		during = f.leaf.State().ConnectivityState
	})
	f.Loop.Do(func() {}) // what was posted has run
	xdstest.Equal(t, "the leaf's state within the report",
		connectivity.Connecting, during)
	got := f.leaf.State()
	if _, err := got.Picker.Pick(balancer.PickInfo{Ctx: context.Background()}); got.ConnectivityState != ready.ConnectivityState || err == nil || err.Error() != "the picker" {
		t.Errorf("the leaf's state is %v with a picker that fails with %v, want the policy's latest", got.ConnectivityState, err)
	}
	xdstest.Equal(t, "changes that 6 reports in a row made", 1, f.changes)
}

// The caller of Update reads the state afterwards. The caller of ExitIdle does not, and relies
// on the event.
func TestReportWithinAnUpdateIsTheStateAtOnceAndAnEvent(t *testing.T) {
	f := newSpied(t)
	f.spy.readyOnUpdate = true
	var after connectivity.State
	f.Loop.Do(func() {
		f.leaf.Update([]xdsresource.Endpoint{endpoint("1.1.1.1:1", 1, 0)}, "")
		after = f.leaf.State().ConnectivityState
	})
	f.Loop.Do(func() {}) // what was posted has run
	if after != connectivity.Ready || f.changes != 1 {
		t.Errorf("the leaf was %v after the update, with %d changes; want READY and 1", after, f.changes)
	}
}

func TestIdlePolicyReconnects(t *testing.T) {
	f := newSpied(t)
	f.spy.cc.UpdateState(tree.Waiting(connectivity.Idle))
	f.Loop.Do(func() {})
	xdstest.Equal(t, "how often ExitIdle was called after a report of IDLE", 1, f.spy.idleExits)
}

func TestPolicyThatRefusesItsEndpoints(t *testing.T) {
	for _, tc := range []struct {
		name    string
		reports bool // in the course of the update
		want    connectivity.State
	}{
		{"and reports nothing has failed", false, connectivity.TransientFailure},
		{"and reports is believed", true, connectivity.Ready},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newSpied(t)
			f.spy.refuse = errors.New("one too many")
			f.spy.readyOnUpdate = tc.reports
			f.update("1.1.1.1:1")
			f.Loop.Do(func() {})
			s := f.leaf.State()
			if s.ConnectivityState != tc.want {
				t.Fatalf("the leaf is %v, want %v", s.ConnectivityState, tc.want)
			}
			if _, err := s.Picker.Pick(balancer.PickInfo{Ctx: context.Background()}); !tc.reports && !strings.Contains(err.Error(), "one too many") {
				t.Errorf("got error %q, want one with the reason", err)
			}
		})
	}
}

func TestPolicyIsCalledByOneGoroutineAtATime(t *testing.T) {
	f := newSpied(t)
	sc, err := f.spy.cc.NewSubConn([]resolver.Address{{Addr: "1.1.1.1:1"}}, balancer.NewSubConnOptions{})
	xdstest.NoError(t, err)
	// While the policy is in ExitIdle, on the loop, a SubConn reports from the
	// channel's goroutine.
	f.spy.whileInside = func() {
		sc.Connect()
		select {
		case <-f.spy.reentered:
			t.Error("two goroutines were in the policy at once")
		case <-time.After(100 * time.Millisecond):
		}
	}
	f.Loop.Do(f.leaf.ExitIdle)
	f.Loop.Do(f.leaf.Close)
}

func TestCloseEndsEverything(t *testing.T) {
	f := newSpied(t)
	kept := f.spy.cc
	sc, err := kept.NewSubConn([]resolver.Address{{Addr: "1.1.1.1:1"}}, balancer.NewSubConnOptions{})
	xdstest.NoError(t, err)
	sc.Connect()
	f.Loop.Do(f.leaf.Close)
	if !f.spy.closed {
		t.Error("the policy was not closed")
	}
	if open := f.CC.Open(); len(open) != 0 {
		t.Errorf("SubConns %v outlived the leaf", open)
	}
	if _, err := kept.NewSubConn([]resolver.Address{{Addr: "1.1.1.1:2"}}, balancer.NewSubConnOptions{}); err == nil {
		t.Error("a closed leaf made a SubConn")
	}
	if open := f.CC.Open(); len(open) != 0 {
		t.Errorf("SubConns %v were made by a closed leaf", open)
	}
	kept.UpdateState(tree.Waiting(connectivity.Ready))
	f.Loop.Do(f.leaf.ExitIdle)
	if f.changes != 0 || f.spy.idleExits != 0 {
		t.Errorf("after Close there were %d changes and %d calls", f.changes, f.spy.idleExits)
	}
}
