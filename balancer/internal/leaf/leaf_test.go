//lint:file-ignore SA1019 The tests call what gRPC's policies call.

package leaf_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/experimental/balancer/weight"
	"google.golang.org/grpc/resolver"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/balancer/internal/leaf"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

func TestMain(m *testing.M) {
	balancer.Register(spyBuilder{})
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
	f.Loop.Do(func() { f.leaf.Update([]xdsresource.Endpoint{{Address: addr, Weight: 1}}, "") })
}

// versioned is metadata that has a version, none for "".
func versioned(t *testing.T, version string) string {
	if version == "" {
		return ""
	}
	wire, err := proto.Marshal(&corepb.Metadata{FilterMetadata: map[string]*structpb.Struct{
		"envoy.lb": {Fields: map[string]*structpb.Value{"version": structpb.NewStringValue(version)}},
	}})
	xdstest.NoError(t, err)
	return string(wire)
}

// describe returns the addresses, the weight and the version of an endpoint.
func describe(e resolver.Endpoint) string {
	var addrs []string
	for _, a := range e.Addresses {
		addrs = append(addrs, a.Addr)
	}
	version := xdsresource.MetadataOf(e).GetFilterMetadata()["envoy.lb"].GetFields()["version"].GetStringValue()
	return fmt.Sprintf("%s*%d %s", strings.Join(addrs, "+"), weight.FromEndpoint(e).Weight, version)
}

// gRFC A27, "ClusterLoadAssignment Proto": endpoints that are neither HEALTHY nor UNKNOWN are ignored. A policy of the program's own
// gets their weights and their metadata, and, as it may not know endpoints, the addresses of them all with the same attributes.
// It gets no update without a change.
func TestPolicyGetsItsEndpoints(t *testing.T) {
	f := newSpied(t)
	var all []xdsresource.Endpoint
	for i, version := range []string{"v1", "v2", "", "v1", "v1"} {
		e := xdsresource.Endpoint{Address: fmt.Sprint(i), Weight: uint32(1 + i%2), Health: xdsresource.HealthHealthy * xdsresource.HealthStatus(i%2)}
		e.Metadata = versioned(t, version)
		all = append(all, e)
	}
	all[1].Additional = []string{"5"}
	for _, h := range []xdsresource.HealthStatus{xdsresource.HealthUnhealthy, xdsresource.HealthDraining, xdsresource.HealthTimeout, xdsresource.HealthDegraded} {
		all = append(all, xdsresource.Endpoint{Address: "ignored", Weight: 1, Health: h})
	}
	for i, version := range []string{"v2", "v3"} {
		all = slices.Clone(all)
		all[1].Metadata = versioned(t, version)
		for range 3 {
			f.Loop.Do(func() { f.leaf.Update(all, "") })
		}
		xdstest.Equal(t, "updates of the policy", i+1, len(f.spy.updates))
		got := f.spy.updates[i].ResolverState
		var endpoints, addresses []string
		for _, e := range got.Endpoints {
			endpoints = append(endpoints, describe(e))
		}
		for _, a := range got.Addresses {
			//lint:ignore SA1019 It is where policies look that do not know endpoints.
			addresses = append(addresses, describe(resolver.Endpoint{Addresses: []resolver.Address{a}, Attributes: a.BalancerAttributes}))
		}
		xdstest.Equal(t, "endpoints", []string{"0*1 v1", "1+5*2 " + version, "2*1 ", "3*2 v1", "4*1 v1"}, endpoints)
		xdstest.Equal(t, "addresses", []string{"0*1 v1", "1*2 " + version, "5*2 " + version, "2*1 ", "3*2 v1", "4*1 v1"}, addresses)
		if list := got.Endpoints; list[0].Attributes != list[4].Attributes || xdsresource.MetadataOf(list[2]) != nil {
			t.Error("endpoints that are alike do not share their attributes, or there is metadata of none")
		}
	}
}

// gRFC A37, "Priority Policy Reresolution Handling": only the names of the policy's cluster are looked up again.
func TestPolicyAsksForAnotherLookUp(t *testing.T) {
	f := newSpied(t)
	asked := 0
	f.Env.ResolveNow = func() { asked++ }
	f.spy.cc.ResolveNow(resolver.ResolveNowOptions{})
	f.Loop.Do(func() {})
	xdstest.Equal(t, "look-ups", 1, asked)
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
		f.leaf.Update([]xdsresource.Endpoint{{Address: "1.1.1.1:1", Weight: 1}}, "")
		after = f.leaf.State().ConnectivityState
	})
	f.Loop.Do(func() {}) // what was posted has run
	if after != connectivity.Ready || f.changes != 1 {
		t.Errorf("the leaf was %v after the update, with %d changes; want READY and 1", after, f.changes)
	}
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
