// Package traffic counts the RPCs of the process that are in flight to each cluster.
//
// It is for the limit of gRFC A32, which holds for all channels of a process together, and for
// diagnostics. It limits nothing: the pickers of package cluster do.
package traffic

import (
	"sync"
	"sync/atomic"

	"github.com/dynxds/dynxds/internal/refpool"
)

// Key identifies what is counted together: a cluster with one EDS service (gRFC A32, "Globally
// shared atomics for outstanding requests").
type Key struct{ Cluster, Service string }

// counters has the Counters that a cluster uses, or that have RPCs in flight.
var counters refpool.Weak[Key, Counter]

// Counter counts the RPCs of one Key. Start and End are for the RPC path: they take no lock and
// allocate nothing.
type Counter struct {
	// started and ended count RPCs; the difference is in flight. They only grow.
	started, ended atomic.Uint64
	retries        atomic.Int64 // in flight

	mu     sync.Mutex
	window *Window // see the method; nil before
}

// Use returns the process's Counter of key. RPCs in flight refer to their Counter, so that the limit also holds for a cluster
// that is removed and added again.
func Use(key Key) *Counter { return counters.Get(key, func() *Counter { return new(Counter) }) }

// Start counts an RPC as in flight unless limit RPCs are. It neither lets through more than
// limit nor refuses an RPC while there are fewer, as adding first and checking afterwards
// would.
func (c *Counter) Start(limit uint32) bool {
	for {
		// ended is read first: RPCs that end later only make room.
		ended := c.ended.Load()
		started := c.started.Load()
		switch {
		case started-ended < uint64(limit):
			if c.started.CompareAndSwap(started, started+1) {
				return true
			}
		case c.ended.Load() == ended: // so that limit RPCs were in flight when started was read
			return false
		}
	}
}

// End ends an RPC for which Start returned true.
func (c *Counter) End() { c.ended.Add(1) }

// InFlight returns how many RPCs are in flight.
func (c *Counter) InFlight() int64 {
	ended := c.ended.Load()
	return int64(c.started.Load() - ended)
}

// StartRetry counts an RPC, which Start has counted or is about to, as a retry. It reports false,
// and counts nothing, if there are limit retries in flight, or percent of the RPCs in flight, or of
// those of the Window if there is one, if that is more.
func (c *Counter) StartRetry(limit uint32, percent float64, w *Window) bool {
	for {
		n, rpcs := c.retries.Load(), c.InFlight()
		if w != nil {
			rpcs = w.count()
		}
		if n >= max(int64(limit), int64(percent/100*float64(rpcs))) {
			return false
		}
		if c.retries.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// EndRetry ends what StartRetry has counted, before End.
func (c *Counter) EndRetry() { c.retries.Add(-1) }
