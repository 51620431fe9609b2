package balancer_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynxds/dynxds/balancer"
	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// What one endpoint costs that fails and comes back does not depend on how many others
// there are, where the policy is ours. It counts what the process allocates, and is
// therefore not parallel.
func TestAnEndpointThatChangesCostsNothingForTheOthers(t *testing.T) {
	for _, policy := range []string{xdsresource.PolicyRandom, xdsresource.PolicyRingHash} {
		t.Run(policy, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const endpoints, changes, limit = 4000, 20, 64_000
				tr := newTree(t)
				addrs := make([]string, endpoints)
				for i := range addrs {
					addrs[i] = fmt.Sprintf("a%d:1", i)
				}
				tr.update(map[string]*balancer.ClusterState{"c": with(policy, serving(addrs...))})
				d := &decision.Decision{Context: context.Background(), Version: 1, Cluster: "c", Extra: &decision.Extra{RPC: hash(7)}}
				var addr string
				var err error
				for range 3 { // Ring hash connects to an endpoint that is picked.
					addr, err = tr.CC.Pick(d)
					synctest.Wait()
				}
				if err != nil {
					t.Fatal(err)
				}
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				for range changes {
					tr.Network.Set(addr, lbtest.Refused)
					synctest.Wait()
					tr.Network.Set(addr, lbtest.Up)
					time.Sleep(lbtest.Backoff)
					synctest.Wait()
					tr.CC.Pick(d) // It connects again.
					synctest.Wait()
				}
				runtime.ReadMemStats(&after)
				if bytes := (after.TotalAlloc - before.TotalAlloc) / changes; bytes > limit {
					t.Errorf("an endpoint that fails and comes back allocates %d bytes, want %d at most", bytes, limit)
				}
			})
		})
	}
}
