package locality_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/balancer/internal/locality"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture runs the localities of one priority over a fake network.
type fixture struct {
	*lbtest.Fixture[*locality.Policy]
}

func newFixture(t testing.TB) *fixture {
	return &fixture{lbtest.NewFixture(t, locality.New)}
}

func test(t *testing.T, run func(*testing.T, *fixture)) { subtest(run)(t) }

func subtest(run func(*testing.T, *fixture)) func(*testing.T) { return lbtest.Subtest(newFixture, run) }

func (f *fixture) update(localities ...xdsresource.Locality) {
	f.updateTo(locality.Config{LeafPolicy: "round_robin", Localities: localities})
}

func (f *fixture) updateTo(c locality.Config) { f.Update(func() { f.Policy.Update(c) }) }

func at(zone string, weight uint32, addrs ...string) xdsresource.Locality {
	l := lbtest.Locality(zone, addrs...)
	l.Weight = weight
	return l
}

func TestPicksByWeightThenRoundRobin(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		f.update(at("a", 90, "a1:1", "a2:1", "a3:1"), at("b", 10, "b1:1"))
		counts := f.Counts(10_000)
		a := []int{counts["a1:1"], counts["a2:1"], counts["a3:1"]}
		xdstest.CheckShares(t, "picks of both localities", []int{a[0] + a[1] + a[2], counts["b1:1"]}, 90, 10)
		if slices.Max(a)-slices.Min(a) > 1 {
			t.Errorf("the endpoints of a locality get %v picks, want round robin", a)
		}
	})
}

func TestStateOfTheLocalitiesTogether(t *testing.T) {
	for _, tc := range []struct {
		name  string
		a, b  lbtest.Reach
		state connectivity.State
		picks []string // where they go
		fails string   // if picks is nil
	}{
		{name: "both ready", a: lbtest.Up, b: lbtest.Up, state: connectivity.Ready,
			picks: []string{"a:1", "b:1"}},
		{name: "one ready, one failed: the ready one gets all", a: lbtest.Refused, b: lbtest.Up,
			state: connectivity.Ready, picks: []string{"b:1"}},
		{name: "one ready, one connecting: the ready one gets all", a: lbtest.Silent, b: lbtest.Up,
			state: connectivity.Ready, picks: []string{"b:1"}},
		{name: "one connecting, one failed: RPCs wait", a: lbtest.Silent, b: lbtest.Refused,
			state: connectivity.Connecting, fails: balancer.ErrNoSubConnAvailable.Error()},
		{name: "both failed: RPCs fail", a: lbtest.Refused, b: lbtest.Refused,
			state: connectivity.TransientFailure, fails: "connection refused"},
	} {
		t.Run(tc.name, subtest(func(t *testing.T, f *fixture) {
			f.Network.Set("a:1", tc.a)
			f.Network.Set("b:1", tc.b)
			f.update(at("a", 9, "a:1"), at("b", 1, "b:1"))
			f.ExpectState(tc.name, tc.state)
			got := f.Counts(300)
			if tc.picks != nil {
				xdstest.Equal(t, "300 picks", tc.picks, slices.Sorted(maps.Keys(got)))
			}
			for outcome := range got {
				if tc.picks == nil && !strings.Contains(outcome, tc.fails) {
					t.Errorf("a pick gave %q, want %q", outcome, tc.fails)
				}
			}
		}))
	}
}

func TestLocalityKeepsItsConnectionsOverUpdates(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		f.update(at("a", 1, "a:1"), at("b", 1, "b:1"))
		f.Network.Set("a:1", lbtest.Silent)
		f.Network.Set("a:1", lbtest.Up)
		synctest.Wait()
		kept := pickSubConn(t, f, "a:1")
		// Another order, weight and neighbor.
		f.update(at("c", 2, "c:1"), at("a", 8, "a:1"))
		if got := pickSubConn(t, f, "a:1"); got != kept {
			t.Error("the locality was connected again")
		}
		f.ExpectOpen("open connections", "a:1", "c:1")
		counts := f.Counts(10_000)
		xdstest.CheckShares(t, "picks by the new weights", []int{counts["a:1"], counts["c:1"]}, 8, 2)
	})
}

func pickSubConn(t *testing.T, f *fixture, addr string) balancer.SubConn {
	t.Helper()
	for range 100 {
		result, err := f.CC.State().Picker.Pick(balancer.PickInfo{Ctx: context.Background()})
		xdstest.NoError(t, err)
		if sc := lbtest.Picked(result); sc.Addr == addr {
			return sc
		}
	}
	t.Fatalf("no pick went to %s", addr)
	return nil
}

// gRFC A27, "ClusterLoadAssignment Proto".
func TestLocalityWithoutUsableEndpointGetsNoRPC(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		sick := at("a", 9, "a:1")
		sick.Endpoints[0].Health = xdsresource.HealthUnhealthy
		f.update(sick, at("b", 1, "b:1"))
		f.ExpectCounts("10 picks", 10, map[string]int{"b:1": 10})
		f.update(sick)
		if s := f.CC.State(); s.ConnectivityState != connectivity.TransientFailure {
			t.Errorf("without any usable endpoint the state is %v, want TRANSIENT_FAILURE", s.ConnectivityState)
		}
		for outcome := range f.Counts(1) {
			xdstest.Equal(t, "a pick without any usable endpoint",
				"no locality of the priority has a usable endpoint", outcome)
		}
		f.ExpectOpen("only unusable endpoints")
	})
}

func TestConnectionThatEndsIsMadeAgain(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		f.update(at("a", 1, "a:1"))
		f.Network.Set("a:1", lbtest.Refused)
		synctest.Wait()
		if _, err := f.CC.Pick(context.Background()); err == nil || errors.Is(err, balancer.ErrNoSubConnAvailable) {
			t.Errorf("pick while the only endpoint is down gave %v, want its connection error", err)
		}
		f.Network.Set("a:1", lbtest.Up)
		time.Sleep(lbtest.Backoff)
		synctest.Wait()
		f.ExpectCounts("3 picks after it can be reached again", 3, map[string]int{"a:1": 3})
	})
}

// A ring connects when it is picked. One of several localities must not wait for that, as it
// may get no pick.
func TestLocalitiesThatConnectOnDemandAllGetTheirShare(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		f.updateTo(locality.Config{LeafPolicy: xdsresource.PolicyRingHash,
			Localities: []xdsresource.Locality{at("a", 3, "a:1"), at("b", 1, "b:1")}})
		counts := make(map[string]int)
		for range 10_000 {
			addr, err := f.CC.Pick(&decision.Decision{Context: context.Background()})
			xdstest.NoError(t, err)
			counts[addr]++
		}
		xdstest.CheckShares(t, "picks", []int{counts["a:1"], counts["b:1"]}, 3, 1)
	})
}

// A locality that is alone connects when it is picked, or asked to; one of several that loses its
// connection connects again.
func TestLocalitiesThatConnectOnDemandAreIdle(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		ring := func(localities ...xdsresource.Locality) {
			f.updateTo(locality.Config{LeafPolicy: xdsresource.PolicyRingHash, Localities: localities})
		}
		ring(at("a", 1, "a:1"))
		f.ExpectState("one locality", connectivity.Idle)
		f.Loop.Do(f.Policy.ExitIdle)
		synctest.Wait()
		f.ExpectState("one locality that was asked to connect", connectivity.Ready)
		ring(at("a", 1, "a:1"), at("b", 1, "b:1"))
		f.ExpectOpen("two localities", "a:1", "b:1")
		f.Network.Set("a:1", lbtest.Silent)
		f.Network.Set("a:1", lbtest.Up)
		synctest.Wait()
		f.Loop.Do(func() {
			xdstest.Equal(t, "the states after one lost its connection", map[xdsresource.LocalityID]connectivity.State{
				{Zone: "a"}: connectivity.Ready, {Zone: "b"}: connectivity.Ready,
			}, f.Policy.States())
		})
		f.Close()
		f.ExpectOpen("after Close")
	})
}

// A locality whose policy changes gets a new one; States and Failure say how the localities are.
func TestAnotherPolicyForTheSameLocality(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		expect := func(when string, want connectivity.State, failed bool) {
			t.Helper()
			synctest.Wait()
			f.Loop.Do(func() {
				states, err := f.Policy.States(), f.Policy.Failure()
				xdstest.Equal(t, when+": the states", map[xdsresource.LocalityID]connectivity.State{{Zone: "a"}: want}, states)
				if (err != nil) != failed {
					t.Errorf("%s: the failure is %v", when, err)
				}
			})
		}
		f.update(at("a", 1, "a:1"))
		expect("round robin", connectivity.Ready, false)
		f.updateTo(locality.Config{LeafPolicy: "custom", Localities: []xdsresource.Locality{at("a", 1, "a:1")}})
		expect("an unknown policy", connectivity.TransientFailure, true)
		f.updateTo(locality.Config{LeafPolicy: "custom", Localities: []xdsresource.Locality{at("a", 1, "a:1"), at("b", 1, "b:1")}})
		f.Loop.Do(func() {
			if f.Policy.Failure() == nil {
				t.Error("two localities with an unknown policy are no failure")
			}
		})
		f.update(at("a", 1, "a:1"))
		f.Network.Set("a:1", lbtest.Refused)
		expect("a connection that is refused", connectivity.TransientFailure, false)
	})
}

// gRFC A78, "Optional xDS Locality Label": connections have the label of the locality of their endpoint, also if
// one policy picks across localities.
func TestConnectionsHaveTheLabelOfTheirLocality(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		f.Loop.Do(func() { f.Record() })
		expect := func(addr, zone string) {
			t.Helper()
			if want := fmt.Sprintf(`{region="", zone=%q, sub_zone=""}`, zone); !f.CC.Labelled(addr, "", want) {
				t.Errorf("the connection to %s does not have the label %s", addr, want)
			}
		}
		f.update(at("a", 1, "a:1"), at("b", 1, "b:1"))
		expect("a:1", "a")
		expect("b:1", "b")
		f.updateTo(locality.Config{LeafPolicy: "round_robin", AcrossLocalities: true,
			Merged: []xdsresource.Locality{at("a", 1, "a:2"), at("b", 1, "b:2")}, Localities: []xdsresource.Locality{at("", 1, "a:2", "b:2")}})
		expect("a:2", "a")
		expect("b:2", "b")
	})
}

// Localities that connect one after the other cost what one costs, times their number. It runs alone, as
// it counts the bytes that the process allocates.
func TestCostOfConnectingIsLinearInTheLocalities(t *testing.T) {
	allocated := func(n int) (bytes uint64) {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t)
			var localities []xdsresource.Locality
			for i := range n {
				addr := fmt.Sprintf("a%d:1", i)
				f.Network.Set(addr, lbtest.Silent)
				localities = append(localities, at(fmt.Sprint(i), 1, addr))
			}
			f.update(localities...)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for i := range n {
				f.Network.Set(fmt.Sprintf("a%d:1", i), lbtest.Up)
				synctest.Wait()
			}
			runtime.ReadMemStats(&after)
			bytes = after.TotalAlloc - before.TotalAlloc
			if got := len(f.Counts(100 * n)); got != n {
				t.Errorf("%d of %d localities are picked", got, n)
			}
		})
		return bytes
	}
	few, many := allocated(50), allocated(500)
	if many > 20*few { // The square would be 100 times as much.
		t.Errorf("10 times as many localities cost %d instead of %d bytes", many, few)
	}
}
