package random_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/balancer"

	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/balancer/internal/random"
	"github.com/dynxds/dynxds/internal/xdstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type fixture struct {
	*lbtest.Fixture[*random.Policy]
}

func test(t *testing.T, run func(*testing.T, *fixture)) {
	lbtest.Subtest(func(t testing.TB) *fixture { return &fixture{lbtest.NewFixture(t, random.NewSlowStart)} }, run)(t)
}

func (f *fixture) update(config string, addrs ...string) {
	f.Update(func() { f.Policy.Update(lbtest.Locality("", addrs...).Endpoints, config) })
}

// after returns how many of n RPCs, one at a time, go to each address after a while.
func (f *fixture) after(d time.Duration, n int) map[string]int {
	f.T.Helper()
	time.Sleep(d)
	synctest.Wait()
	counts := make(map[string]int)
	for range n {
		result, err := f.CC.State().Picker.Pick(balancer.PickInfo{Ctx: context.Background()})
		xdstest.NoError(f.T, err)
		counts[lbtest.Picked(result).Addr]++
		if result.Done != nil {
			result.Done(balancer.DoneInfo{})
		}
	}
	return counts
}

// minute is a round robin whose endpoints start for 100 s, with Envoy's defaults otherwise.
const minute = `{"windowNanos":100000000000}`

// Envoy's formula: the weight is the part of the window that is over, but no less than 10%.
func TestSharesGrow(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		// c's part, beside a and b with 1 each.
		share := func(when string, wait time.Duration, c float64) {
			t.Helper()
			xdstest.Shares(t, when, map[string]float64{"a:1": 1, "b:1": 1, "c:1": c}, f.after(wait, 10_000))
		}
		f.update(minute, "a:1", "b:1")
		xdstest.Shares(t, "a client starts, and all its endpoints alike", map[string]float64{"a:1": 1, "b:1": 1}, f.after(0, 1000))
		time.Sleep(100 * time.Second)
		f.update(minute, "a:1", "b:1", "c:1")
		share("at first", 0, 0.1)
		share("after 5 s", 5*time.Second, 0.1)
		share("after 30 s", 25*time.Second, 0.3)
		f.update(minute, "c:1", "b:1", "a:1")
		share("after 60 s and an update", 30*time.Second, 0.6)
		share("after 90 s", 30*time.Second, 0.9)
		share("after 100 s", 10*time.Second, 1)

		f.Network.Set("c:1", lbtest.Silent)
		f.after(0, 100)
		f.Network.Set("c:1", lbtest.Up)
		share("the connection was replaced", 0, 1)
		f.Network.Set("c:1", lbtest.Refused)
		xdstest.Shares(t, "c is down", map[string]float64{"a:1": 1, "b:1": 1}, f.after(0, 1000))
		f.Network.Set("c:1", lbtest.Up)
		time.Sleep(2 * lbtest.Backoff)
		if got := f.after(0, 1000)["c:1"]; got == 0 || got > 150 {
			t.Errorf("after c was down it gets %d of 1000 RPCs at first", got)
		}
		time.Sleep(100 * time.Second)
		share("up again for long", 0, 1)
		f.update("", "a:1", "b:1", "c:1", "d:1")
		xdstest.Shares(t, "a new endpoint without a window",
			map[string]float64{"a:1": 1, "b:1": 1, "c:1": 1, "d:1": 1}, f.after(0, 1000))
	})
}

// RANDOM ignores weights.
func TestRandom(t *testing.T) {
	lbtest.Subtest(func(t testing.TB) *fixture { return &fixture{lbtest.NewFixture(t, random.New)} }, func(t *testing.T, f *fixture) {
		l := lbtest.Locality("", "a:1", "b:1", "c:1")
		l.Endpoints[0].Weight = 10
		f.Update(func() { f.Policy.Update(l.Endpoints, "") })
		xdstest.Shares(t, "RPCs", map[string]float64{"a:1": 1, "b:1": 1, "c:1": 1}, f.after(0, 10_000))
	})(t)
}

func TestAggressionAndMinimum(t *testing.T) {
	for name, tc := range map[string]struct {
		config string
		want   float64 // b's weight after a quarter of the window
	}{
		"aggression 2":   {`{"windowNanos":100000000000,"aggression":2}`, 0.5},
		"aggression 0.5": {`{"windowNanos":100000000000,"aggression":0.5,"minWeightPercent":0}`, 0.0625},
		"minimum 40%":    {`{"windowNanos":100000000000,"minWeightPercent":40}`, 0.4},
	} {
		t.Run(name, func(t *testing.T) {
			test(t, func(t *testing.T, f *fixture) {
				f.update(tc.config, "a:1")
				time.Sleep(100 * time.Second)
				f.update(tc.config, "a:1", "b:1")
				xdstest.Shares(t, "RPCs", map[string]float64{"a:1": 1, "b:1": tc.want}, f.after(25*time.Second, 10_000))
			})
		})
	}
}

// Least request with weights: an endpoint at a tenth of its share counts each RPC in flight ten times.
func TestLeastRequest(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		const config = `{"windowNanos":100000000000,"choiceCount":10}`
		f.update(config, "a:1", "b:1")
		time.Sleep(100 * time.Second)
		f.update(config, "a:1", "b:1", "c:1")
		counts, ends := map[string]int{}, map[string][]func(balancer.DoneInfo){}
		pick := func(n int) {
			for range n {
				result, err := f.CC.State().Picker.Pick(balancer.PickInfo{Ctx: context.Background()})
				xdstest.NoError(t, err)
				addr := lbtest.Picked(result).Addr
				counts[addr]++
				ends[addr] = append(ends[addr], result.Done)
			}
		}
		pick(210)
		// Ten draws of three miss one in 60 times, so that the numbers are near 100, 100 and 10.
		if a, b, c := counts["a:1"], counts["b:1"], counts["c:1"]; min(a, b) < 90 || max(a, b) > 110 || c < 5 || c > 15 {
			t.Errorf("in flight at first are %v", counts)
		}
		time.Sleep(100 * time.Second)
		synctest.Wait()
		pick(90)
		if slices.Min([]int{counts["a:1"], counts["b:1"], counts["c:1"]}) < 85 {
			t.Errorf("in flight after the window are %v, want 100 each or nearly", counts)
		}
		for _, end := range ends["a:1"] {
			end(balancer.DoneInfo{})
		}
		counts = map[string]int{}
		pick(50)
		if counts["a:1"] < 45 {
			t.Errorf("with none in flight, a gets %d of 50", counts["a:1"])
		}
	})
}
