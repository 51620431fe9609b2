package random_test

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/balancer/internal/random"
	"github.com/dynxds/dynxds/internal/xdstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRandom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := lbtest.NewFixture(t, random.New)
		update := func(addrs ...string) {
			endpoints := lbtest.Locality("", addrs...).Endpoints
			for i := range endpoints {
				endpoints[i].Weight = uint32(i + 1)
			}
			f.Update(func() { f.Policy.Update(endpoints, "") })
		}
		expectOnly := func(n int, addrs ...string) []int {
			t.Helper()
			got := f.Counts(n)
			counts := make([]int, len(addrs))
			for i, a := range addrs {
				counts[i] = got[a]
				n -= got[a]
			}
			if n != 0 {
				t.Errorf("%d picks go elsewhere: %v", n, got)
			}
			return counts
		}
		expectFailure := func(when, want string, state connectivity.State) {
			t.Helper()
			f.Expect(when, want)
			f.ExpectState(when, state)
		}

		update()
		expectFailure("no endpoint", "no usable endpoint", connectivity.TransientFailure)
		update("a:1", "b:1", "c:1", "d:1")
		xdstest.CheckShares(t, "picks", expectOnly(40000, "a:1", "b:1", "c:1", "d:1"), 1, 1, 1, 1)

		f.Network.Set("a:1", lbtest.Refused)
		f.Network.Set("b:1", lbtest.Silent)
		synctest.Wait()
		expectOnly(1000, "c:1", "d:1")

		f.Network.Set("c:1", lbtest.Silent)
		f.Network.Set("d:1", lbtest.Refused)
		expectFailure("some connect", lbtest.Waits, connectivity.Connecting)
		f.Network.Set("b:1", lbtest.Refused)
		f.Network.Set("c:1", lbtest.Refused)
		expectFailure("all failed", "connection refused", connectivity.TransientFailure)

		f.Network.Set("a:1", lbtest.Up)
		time.Sleep(2 * lbtest.Backoff)
		synctest.Wait()
		expectOnly(100, "a:1")
	})
}
