package controlplane

import (
	"sync"
	"time"
)

// pace bounds how long a client's own work holds up others.
type pace struct {
	// turn is how long Store.mu is held at a time for work of a size that a client chose.
	turn time.Duration
	// due is how many topics of a client's own subscriptions are sent, or looked up, at a time.
	due int
	// between is called, for tests, when others have their turn; it may be nil.
	between func()
}

var usualPace = pace{turn: 2 * time.Millisecond, due: 1000}

// turns holds locks for such work in pieces, between which others have their turn:
//
//	a client subscribes to 200,000 names     Store.mu is held for 2 ms
//	another client subscribes to one         it has Store.mu
//	the next of the 200,000                  Store.mu is held for 2 ms
type turns struct {
	// locks are taken in this order.
	locks []sync.Locker
	pace  pace
	// pause is called before the locks are released between two pieces; it may be nil.
	pause func()
	// resume is called after they are taken again, and reports whether the work is to go on; it may be nil.
	resume func() bool

	began time.Time
	items int
}

func (t *turns) lock() {
	for _, l := range t.locks {
		l.Lock()
	}
	t.began = time.Now()
}

func (t *turns) unlock() {
	for i := len(t.locks) - 1; i >= 0; i-- {
		t.locks[i].Unlock()
	}
}

// next is called before each item of the work. It gives others their turn if it is due, and reports whether the
// work is to go on.
func (t *turns) next() bool {
	if t.items++; t.pace.turn > 0 && (t.items%16 != 0 || time.Since(t.began) < t.pace.turn) {
		return true
	}
	if t.pause != nil {
		t.pause()
	}
	t.unlock()
	if t.pace.between != nil {
		t.pace.between()
	}
	t.lock()
	return t.resume == nil || t.resume()
}

// reading returns turns of Store.mu, held for reading.
func (s *Store) reading() *turns {
	return &turns{locks: []sync.Locker{s.mu.RLocker()}, pace: s.pace}
}
