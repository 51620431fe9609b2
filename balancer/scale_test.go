package balancer_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// An endpoint that fails and recovers costs the same however many others there are, with the
// policies that are ours. The test counts what the process allocates, and is therefore not
// parallel.
func TestCostOfOneChangedEndpoint(t *testing.T) {
	for _, policy := range []string{xdsresource.PolicyRandom, xdsresource.PolicyRingHash} {
		t.Run(policy, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const endpoints, changes, limit = 4000, 20, 64_000
				tr := newTree(t)
				addrs := make([]string, endpoints)
				for i := range addrs {
					addrs[i] = fmt.Sprintf("a%d:1", i)
				}
				tr.update(states{"c": with(policy, serving(addrs...))})
				d := &decision.Decision{Context: context.Background(), Version: 1, Cluster: "c", Extra: &decision.Extra{RPC: hash(7)}}
				var addr string
				var err error
				for range 3 { // Ring hash connects to an endpoint that is picked.
					addr, err = tr.CC.Pick(d)
					synctest.Wait()
				}
				xdstest.NoError(t, err)
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				for range changes {
					tr.CC.Set(addr, lbtest.Refused)
					synctest.Wait()
					tr.CC.Set(addr, lbtest.Up)
					time.Sleep(lbtest.Backoff)
					synctest.Wait()
					tr.CC.Pick(d) // It connects again.
					synctest.Wait()
				}
				runtime.ReadMemStats(&after)
				if bytes := (after.TotalAlloc - before.TotalAlloc) / changes; bytes > limit {
					t.Errorf("an endpoint that fails and recovers allocates %d bytes, want %d at most", bytes, limit)
				}
			})
		})
	}
}

// Localities that connect one after the other cost what one costs, times their number. It runs alone, as
// it counts the bytes that the process allocates.
func TestCostOfConnectingIsLinearInTheLocalities(t *testing.T) {
	allocated := func(n int) (bytes uint64) {
		synctest.Test(t, func(t *testing.T) {
			s := newScript(t)
			var localities []string
			for i := range n {
				s.CC.Set(fmt.Sprintf("%d:1", i), lbtest.Silent)
				localities = append(localities, fmt.Sprintf("%d=%d", i, i))
			}
			s.step("endpoints " + strings.Join(localities, " "))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for i := range n {
				s.CC.Set(fmt.Sprintf("%d:1", i), lbtest.Up)
				synctest.Wait()
			}
			runtime.ReadMemStats(&after)
			bytes = after.TotalAlloc - before.TotalAlloc
			xdstest.Equal(t, "localities that are picked", n, len(strings.Fields(s.step(fmt.Sprint("rpcs ", 100*n)))))
		})
		return bytes
	}
	few, many := allocated(50), allocated(500)
	if many > 20*few { // The square would be 100 times as much.
		t.Errorf("10 times as many localities cost %d instead of %d bytes", many, few)
	}
}
