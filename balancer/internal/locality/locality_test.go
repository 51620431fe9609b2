package locality_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/balancer/internal/locality"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture runs round_robin leaves over a fake network, in a synctest bubble.
type fixture struct {
	network *lbtest.Network
	cc      *lbtest.ClientConn
	loop    *tree.Loop
	policy  *locality.Policy
}

func newFixture() *fixture {
	f := &fixture{network: lbtest.NewNetwork(), loop: tree.NewLoop(func() {})}
	f.cc = lbtest.NewClientConn(f.network)
	env := lbtest.NewEnv(f.loop, f.cc)
	publish := func() { f.cc.UpdateState(f.policy.State()) }
	f.loop.Do(func() { f.policy = locality.New(env, publish) })
	return f
}

func (f *fixture) update(localities ...xdsresource.Locality) {
	f.loop.Do(func() {
		f.policy.Update(locality.Config{LeafPolicy: "round_robin", Localities: localities})
		f.cc.UpdateState(f.policy.State())
	})
	synctest.Wait()
}

func (f *fixture) close() {
	f.loop.Do(f.policy.Close)
	synctest.Wait()
}

func (f *fixture) counts(picks int) map[string]int {
	counts := make(map[string]int)
	for range picks {
		addr, err := f.cc.Pick(context.Background())
		if err != nil {
			addr = err.Error()
		}
		counts[addr]++
	}
	return counts
}

func at(zone string, weight uint32, addrs ...string) xdsresource.Locality {
	l := xdsresource.Locality{ID: xdsresource.LocalityID{Zone: zone}, Weight: weight}
	for _, a := range addrs {
		l.Endpoints = append(l.Endpoints, xdsresource.Endpoint{Address: a, Weight: 1})
	}
	return l
}

func TestPicksByWeightThenRoundRobin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		defer f.close()
		f.update(at("a", 90, "a1:1", "a2:1", "a3:1"), at("b", 10, "b1:1"))
		want := map[string]int{"a1:1": 30, "a2:1": 30, "a3:1": 30, "b1:1": 10}
		if diff := cmp.Diff(want, f.counts(100)); diff != "" {
			t.Errorf("100 picks (-want +got):\n%s", diff)
		}
	})
}

func TestStateOfTheLocalitiesTogether(t *testing.T) {
	for _, tc := range []struct {
		name  string
		a, b  lbtest.Reach
		state connectivity.State
		picks map[string]int // of 10
		fails string         // if picks is nil
	}{
		{name: "both ready", a: lbtest.Up, b: lbtest.Up, state: connectivity.Ready,
			picks: map[string]int{"a:1": 9, "b:1": 1}},
		{name: "one ready, one failed: the ready one gets all", a: lbtest.Refused, b: lbtest.Up,
			state: connectivity.Ready, picks: map[string]int{"b:1": 10}},
		{name: "one ready, one connecting: the ready one gets all", a: lbtest.Silent, b: lbtest.Up,
			state: connectivity.Ready, picks: map[string]int{"b:1": 10}},
		{name: "one connecting, one failed: RPCs wait", a: lbtest.Silent, b: lbtest.Refused,
			state: connectivity.Connecting, fails: balancer.ErrNoSubConnAvailable.Error()},
		{name: "both failed: RPCs fail", a: lbtest.Refused, b: lbtest.Refused,
			state: connectivity.TransientFailure, fails: "connection refused"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture()
				defer f.close()
				f.network.Set("a:1", tc.a)
				f.network.Set("b:1", tc.b)
				f.update(at("a", 9, "a:1"), at("b", 1, "b:1"))
				if got := f.cc.State().ConnectivityState; got != tc.state {
					t.Errorf("state is %v, want %v", got, tc.state)
				}
				got := f.counts(10)
				if tc.picks != nil {
					if diff := cmp.Diff(tc.picks, got); diff != "" {
						t.Errorf("10 picks (-want +got):\n%s", diff)
					}
				}
				for outcome := range got {
					if tc.picks == nil && !strings.Contains(outcome, tc.fails) {
						t.Errorf("a pick gave %q, want %q", outcome, tc.fails)
					}
				}
			})
		})
	}
}

func TestLocalityKeepsItsConnectionsOverUpdates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		defer f.close()
		f.update(at("a", 1, "a:1"), at("b", 1, "b:1"))
		f.network.Set("a:1", lbtest.Silent)
		f.network.Set("a:1", lbtest.Up)
		synctest.Wait()
		kept := pickSubConn(t, f, "a:1")
		// Another order, weight and neighbour.
		f.update(at("c", 2, "c:1"), at("a", 8, "a:1"))
		if got := pickSubConn(t, f, "a:1"); got != kept {
			t.Error("the locality was connected anew")
		}
		if diff := cmp.Diff([]string{"a:1", "c:1"}, f.cc.Open()); diff != "" {
			t.Errorf("open connections (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[string]int{"a:1": 8, "c:1": 2}, f.counts(10)); diff != "" {
			t.Errorf("10 picks by the new weights (-want +got):\n%s", diff)
		}
	})
}

func pickSubConn(t *testing.T, f *fixture, addr string) balancer.SubConn {
	t.Helper()
	for range 100 {
		result, err := f.cc.State().Picker.Pick(balancer.PickInfo{Ctx: context.Background()})
		if err != nil {
			t.Fatal(err)
		}
		if sc := lbtest.Picked(result); sc.Addr == addr {
			return sc
		}
	}
	t.Fatalf("no pick went to %s", addr)
	return nil
}

// gRFC A27, "ClusterLoadAssignment Proto".
func TestLocalityWithoutUsableEndpointGetsNoRPC(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		defer f.close()
		sick := at("a", 9, "a:1")
		sick.Endpoints[0].Health = xdsresource.HealthUnhealthy
		f.update(sick, at("b", 1, "b:1"))
		if diff := cmp.Diff(map[string]int{"b:1": 10}, f.counts(10)); diff != "" {
			t.Errorf("10 picks (-want +got):\n%s", diff)
		}
		f.update(sick)
		if s := f.cc.State(); s.ConnectivityState != connectivity.TransientFailure {
			t.Errorf("without any usable endpoint the state is %v, want TRANSIENT_FAILURE", s.ConnectivityState)
		}
		for outcome := range f.counts(1) {
			if outcome != "no locality of the priority has a usable endpoint" {
				t.Errorf("without any usable endpoint a pick gives %q", outcome)
			}
		}
		if open := f.cc.Open(); len(open) != 0 {
			t.Errorf("connections %v are open to endpoints that may not be used", open)
		}
	})
}

func TestConnectionThatEndsIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		defer f.close()
		f.update(at("a", 1, "a:1"))
		f.network.Set("a:1", lbtest.Refused)
		synctest.Wait()
		if _, err := f.cc.Pick(context.Background()); err == nil || errors.Is(err, balancer.ErrNoSubConnAvailable) {
			t.Errorf("pick while the only endpoint is down gave %v, want its connection error", err)
		}
		f.network.Set("a:1", lbtest.Up)
		time.Sleep(lbtest.Backoff)
		synctest.Wait()
		if diff := cmp.Diff(map[string]int{"a:1": 3}, f.counts(3)); diff != "" {
			t.Errorf("3 picks after it came back (-want +got):\n%s", diff)
		}
	})
}

// A ring connects when an RPC comes; one locality among several must not wait
// for an RPC that it does not get.
func TestLocalitiesThatConnectOnDemandAllGetTheirShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		defer f.close()
		f.loop.Do(func() {
			f.policy.Update(locality.Config{LeafPolicy: xdsresource.PolicyRingHash,
				Localities: []xdsresource.Locality{at("a", 3, "a:1"), at("b", 1, "b:1")}})
			f.cc.UpdateState(f.policy.State())
		})
		synctest.Wait()
		counts := make(map[string]int)
		for range 8 {
			addr, err := f.cc.Pick(&decision.Decision{Context: context.Background()})
			if err != nil {
				t.Fatal(err)
			}
			counts[addr]++
		}
		if diff := cmp.Diff(map[string]int{"a:1": 6, "b:1": 2}, counts); diff != "" {
			t.Errorf("8 picks (-want +got):\n%s", diff)
		}
	})
}
