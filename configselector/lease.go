package configselector

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
)

// lease counts the RPCs that a Selector runs, so that it is known when the last
// one has ended. Only Selectors with filter instances that want to be closed
// have one: it costs an RPC two atomic additions, on a cache line that it
// shares with one in leaseStripes of the RPCs.
//
// An RPC adds to a stripe and then looks whether the lease has ended; ending it
// sets the mark and then looks at the stripes. One of the two sees the other,
// so an RPC that takes hold is always counted, and a stripe that is empty
// behind the mark holds no RPC and never will.
type lease struct {
	stripes [leaseStripes]stripe
	ended   atomic.Bool
	idle    func() // is called once, when the lease has ended and is empty
	once    sync.Once
}

const leaseStripes = 8

// stripe has a cache line to itself.
type stripe struct {
	n atomic.Int64
	_ [56]byte
}

// hold is one RPC's hold on a lease. The zero hold is one on nothing.
type hold struct {
	lease  *lease
	stripe *stripe
}

// take counts an RPC. It reports false if the lease has ended.
func (l *lease) take() (hold, bool) {
	if l == nil {
		return hold{}, true
	}
	h := hold{lease: l, stripe: &l.stripes[rand.Uint32()%leaseStripes]}
	h.stripe.n.Add(1)
	if l.ended.Load() {
		h.release()
		return hold{}, false
	}
	return h, true
}

func (h hold) release() {
	if h.lease == nil {
		return
	}
	h.stripe.n.Add(-1)
	if h.lease.ended.Load() {
		h.lease.check()
	}
}

// end lets no further RPC take hold.
func (l *lease) end() {
	l.ended.Store(true)
	l.check()
}

func (l *lease) check() {
	for i := range l.stripes {
		if l.stripes[i].n.Load() != 0 {
			return
		}
	}
	l.once.Do(l.idle)
}
