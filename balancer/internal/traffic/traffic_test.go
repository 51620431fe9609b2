package traffic_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dynxds/dynxds/balancer/internal/traffic"
	"github.com/dynxds/dynxds/internal/xdstest"
)

func key(t *testing.T) traffic.Key { return traffic.Key{Cluster: t.Name(), Service: "eds"} }

func TestLimitIsExactUnderConcurrency(t *testing.T) {
	t.Parallel()
	const limit, callers, each = 3, 8, 20000
	c := traffic.Use(key(t))
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
	if n := c.InFlight(); n != 0 || through.Load() == 0 {
		t.Errorf("%d in flight at the end, and %d got through", n, through.Load())
	}
}

func TestStartAndEndAllocateNothing(t *testing.T) {
	c := traffic.Use(key(t))
	xdstest.Equal(t, "allocations", 0, testing.AllocsPerRun(100, func() { c.Start(1); c.End() }))
}

// One place is enough for one goroutine after the other: no RPC is refused because another one
// ends at the same time.
func TestNoRPCIsRefusedWhileThereIsRoom(t *testing.T) {
	t.Parallel()
	const goroutines, each = 4, 5000
	c := traffic.Use(traffic.Key{Cluster: t.Name()})
	var running sync.WaitGroup
	for range goroutines {
		running.Go(func() {
			for range each {
				if !c.Start(goroutines) { // never more than that are in flight
					t.Error("an RPC was refused while there was room")
					return
				}
				c.End()
			}
		})
	}
	running.Wait()
	xdstest.Equal(t, "RPCs in flight at the end", 0, c.InFlight())
}
