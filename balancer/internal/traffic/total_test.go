package traffic_test

import (
	"sync"
	"testing"

	"github.com/dynxds/dynxds/balancer/internal/traffic"
)

func TestStartedCountsWhatWasSent(t *testing.T) {
	t.Parallel()
	c := traffic.Use(traffic.Key{Cluster: t.Name()})
	defer c.Release()
	for range 5 {
		c.Start(3)
	}
	c.End()
	c.End()
	if !c.Start(3) {
		t.Error("an RPC was refused although two had ended")
	}
	r := c.Report()
	if r.Picked != 4 || r.InFlight != 2 || r.Refused != 2 {
		t.Errorf("the report has %d started, %d in flight and %d refused; want 4, 2 and 2", r.Picked, r.InFlight, r.Refused)
	}
	c.End()
	c.End() // The counter is removed with the last RPC.
}

// One place is enough for one goroutine after the other: no RPC is refused because another one
// ends at the same time.
func TestNoRPCIsRefusedWhileThereIsRoom(t *testing.T) {
	t.Parallel()
	const goroutines, each = 4, 5000
	c := traffic.Use(traffic.Key{Cluster: t.Name()})
	defer c.Release()
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
	if r := c.Report(); r.InFlight != 0 || r.Refused != 0 || r.Picked != goroutines*each {
		t.Errorf("the report is %+v, want all %d started, and none in flight or refused", r, goroutines*each)
	}
}
