package locality_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

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
		// Another order, weight and neighbor.
		f.update(at("c", 2, "c1:1"), at("b", 8, "b1:1"))
		counts = f.Counts(10_000)
		xdstest.CheckShares(t, "picks by the new weights", []int{counts["b1:1"], counts["c1:1"]}, 8, 2)
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
