package traffic_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dynxds/dynxds/balancer/internal/traffic"
	"github.com/dynxds/dynxds/internal/xdstest"
)

func key(t *testing.T) traffic.Key { return traffic.Key{Cluster: t.Name(), Service: "eds"} }

// gRFC A32, "Globally shared atomics for outstanding requests".
func TestCounterIsSharedByCluster(t *testing.T) {
	t.Parallel()
	a, b := traffic.Use(key(t)), traffic.Use(key(t))
	defer a.Release()
	defer b.Release()
	other := traffic.Use(traffic.Key{Cluster: t.Name(), Service: "another"})
	defer other.Release()
	if !a.Start(1) {
		t.Fatal("the first RPC was refused")
	}
	if b.Start(1) {
		t.Error("another user of the cluster let an RPC through over the limit")
	}
	if !other.Start(1) {
		t.Error("the RPCs of another EDS service were counted too")
	}
	other.End()
	a.End()
	if !b.Start(1) {
		t.Error("an RPC was refused after the other one had ended")
	}
	b.End()
}

// Envoy, CircuitBreakers.Thresholds: max_retries, and RetryBudget: "if there are 100 active requests
// and the budget_percent is set to 25, there may be 25 active retries"; min_retry_concurrency.
func TestRetryLimit(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		inFlight int
		limit    uint32
		percent  float64
		want     int
	}{
		{0, 0, 0, 0}, {100, 0, 0, 0}, {100, 3, 0, 3}, {100, 3, 25, 25}, {4, 3, 25, 3}, {0, 2, 100, 2}, {10, 0, 19.9, 1},
	} {
		c := traffic.Use(traffic.Key{Cluster: t.Name(), Service: fmt.Sprint(tc)})
		for range tc.inFlight {
			c.Start(1000)
		}
		got := 0
		for c.StartRetry(tc.limit, tc.percent, nil) {
			got++
		}
		if got != tc.want {
			t.Errorf("%+v: %d retries", tc, got)
		}
		for i := range got {
			if c.EndRetry(); !c.StartRetry(tc.limit, tc.percent, nil) {
				t.Errorf("%+v: no retry after the end of retry %d", tc, i)
			}
		}
		for range got {
			c.EndRetry()
		}
		for range tc.inFlight {
			c.End()
		}
		c.Release()
	}
}

func TestLimitIsExactUnderConcurrency(t *testing.T) {
	t.Parallel()
	const limit, callers, each = 3, 8, 20000
	c := traffic.Use(key(t))
	defer c.Release()
	var now, most, through atomic.Int64
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range each {
				if !c.Start(limit) {
					continue
				}
				n := now.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				through.Add(1)
				now.Add(-1)
				c.End()
			}
		})
	}
	all.Wait()
	if most.Load() > limit {
		t.Errorf("%d RPCs were in flight at once, the limit is %d", most.Load(), limit)
	}
	r := c.Report()
	if r.InFlight != 0 || int64(r.Refused)+through.Load() != callers*each {
		t.Errorf("%d in flight, %d refused and %d through of %d", r.InFlight, r.Refused, through.Load(), callers*each)
	}
}

// A Counter without users is removed with its last RPC.
func TestCounterLivesAsLongAsItsRPCs(t *testing.T) {
	t.Parallel()
	c := traffic.Use(key(t))
	c.Start(1)
	c.Release()
	again := traffic.Use(key(t))
	if again.Start(1) {
		t.Error("a cluster that was removed and added again let an RPC through over its limit")
	}
	again.Release()
	c.End()
	fresh := traffic.Use(key(t))
	defer fresh.Release()
	if fresh == c {
		t.Error("the count outlived its users and its RPCs")
	}
}

func TestDropsAreCountedByCategory(t *testing.T) {
	t.Parallel()
	c := traffic.Use(key(t))
	defer c.Release()
	c.Drops("a").Add(2)
	c.Drops("b").Add(1)
	c.Drops("a").Add(1)
	xdstest.Equal(t, "drops", map[string]uint64{"a": 3, "b": 1}, c.Report().Dropped)
	for i := range 1000 {
		c.Drops(fmt.Sprint(i)).Add(1)
	}
	dropped := c.Report().Dropped
	if len(dropped) != traffic.MaxCategories+1 || dropped[traffic.Others] != 1000-(traffic.MaxCategories-2) {
		t.Errorf("%d categories are kept, with %d drops of others", len(dropped), dropped[traffic.Others])
	}
}

func TestStartAndEndAllocateNothing(t *testing.T) {
	c := traffic.Use(key(t))
	defer c.Release()
	xdstest.Equal(t, "allocations", 0, testing.AllocsPerRun(100, func() { c.Start(1); c.End() }))
}
