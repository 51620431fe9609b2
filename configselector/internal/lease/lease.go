// Package lease counts the RPCs that use something, so that its owner can close it when the
// last RPC has ended. Taking and releasing a hold takes no lock. configselector has a Lease
// for each Selector whose filters have to be closed.
package lease

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
)

// A Lease counts RPCs until it has ended and the last of them has, too. It costs an RPC two
// atomic additions, on a cache line that it shares with one in leaseStripes of the RPCs. A
// nil Lease counts nothing and never ends.
//
// An RPC adds to a stripe and then checks whether the lease has ended; ending it sets the
// mark and then checks the stripes. One of the two sees the other, so every hold is counted,
// and a stripe that is empty after the mark stays empty.
type Lease struct {
	stripes [leaseStripes]stripe
	ended   atomic.Bool
	idle    func()
	once    sync.Once
}

// New returns a Lease that calls idle once, when it has ended and is empty.
func New(idle func()) *Lease { return &Lease{idle: idle} }

const leaseStripes = 8

// stripe has a cache line to itself.
type stripe struct {
	n atomic.Int64
	_ [56]byte
}

// A Hold is one RPC's hold on a Lease. The zero Hold holds nothing.
type Hold struct {
	lease  *Lease
	stripe *stripe
}

// Take counts an RPC. It reports false if the lease has ended.
func (l *Lease) Take() (Hold, bool) {
	if l == nil {
		return Hold{}, true
	}
	h := Hold{lease: l, stripe: &l.stripes[rand.Uint32()%leaseStripes]}
	h.stripe.n.Add(1)
	if l.ended.Load() {
		h.Release()
		return Hold{}, false
	}
	return h, true
}

// Counts reports whether there is anything to release.
func (h Hold) Counts() bool { return h.lease != nil }

// Release ends the hold. It is called once.
func (h Hold) Release() {
	if h.lease == nil {
		return
	}
	h.stripe.n.Add(-1)
	if h.lease.ended.Load() {
		h.lease.check()
	}
}

// End ends the lease: Take fails from then on.
func (l *Lease) End() {
	l.ended.Store(true)
	l.check()
}

func (l *Lease) check() {
	for i := range l.stripes {
		if l.stripes[i].n.Load() != 0 {
			return
		}
	}
	l.once.Do(l.idle)
}
