package controlplane

import (
	"iter"
	"sync"
	"time"
)

// pace bounds how long a client's own work holds up others.
type pace struct {
	// turn is how long Store.mu is held at a time for work of a size that a client chose.
	turn time.Duration
	// alone is how many items of such work are done before it waits for its turn behind other such work.
	alone int
	// due is how many topics of a client's own subscriptions are sent, or looked up, at a time.
	due int
	// between is called, for tests, when others have their turn; it may be nil.
	between func()
}

var usualPace = pace{turn: 2 * time.Millisecond, alone: 64, due: 1000}

// turns holds locks for such work in pieces, between which others have their turn:
//
//	a client subscribes to 200,000 names     Store.mu is held for 2 ms
//	another client subscribes to one         it has Store.mu
//	the next of the 200,000                  Store.mu is held for 2 ms
//
// Many such works would all wait for Store.mu, and others behind them. So they wait in queues first: those of one
// peer for each other, from the beginning, and then its first one, if it is long, for those of other peers.
type turns struct {
	// locks are taken in this order.
	locks []sync.Locker
	pace  pace
	// peer is that of a stream whose turn it is (peer.enter), if its other streams have theirs between two pieces; else nil.
	peer *peerUsage
	// queue is locked before the locks, but for the first items of the work; it may be nil.
	queue sync.Locker
	// pause is called before the locks are released between two pieces; it may be nil.
	pause func()
	// resume is called after they are taken again, and reports whether the work is to go on; it may be nil.
	resume func() bool

	began  time.Time
	items  int
	queued bool
	// ended is set once the work is not to go on.
	ended bool
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
	t.leaveQueue()
}

// leaveQueue lets the next work wait for the locks.
func (t *turns) leaveQueue() {
	if t.queued {
		t.queue.Unlock()
	}
	t.queued = false
}

// next is called before each item of the work. It gives others their turn if it is due, and reports whether the
// work is to go on.
func (t *turns) next() bool {
	t.items++
	isOver := t.pace.turn == 0 || t.items == t.pace.alone || t.items%16 == 0 && time.Since(t.began) >= t.pace.turn
	if t.ended || !isOver {
		return !t.ended
	}
	if t.pause != nil {
		t.pause()
	}
	t.unlock()
	t.peer.leave()
	if t.pace.between != nil {
		t.pace.between()
	}
	t.peer.enter()
	if t.queue != nil {
		t.queue.Lock()
		t.queued = true
	}
	t.lock()
	t.ended = t.resume != nil && !t.resume()
	return !t.ended
}

// inTurns returns the items of the work, and ends if that is not to go on.
func inTurns[T any](t *turns, items iter.Seq[T]) iter.Seq[T] {
	return func(yield func(T) bool) {
		for item := range items {
			if !t.next() || !yield(item) {
				return
			}
		}
	}
}

// yielding returns the peer for turns of a change of the stream's subscriptions: a request that is not large is carried out
// in one turn among those of its peer, so that there are not many that are carried out in part. The caller holds changing.
func (s *stream) yielding() *peerUsage {
	if s.yields {
		return s.usage.peer
	}
	return nil
}

// reading returns turns of Store.mu, held for reading.
func (s *Store) reading(peer *peerUsage) *turns {
	return &turns{locks: []sync.Locker{s.mu.RLocker()}, pace: s.pace, peer: peer}
}

// writing returns turns of Store.mu.
func (s *Store) writing(peer *peerUsage) turns {
	return turns{locks: []sync.Locker{&s.mu}, pace: s.pace, peer: peer, queue: &s.queue}
}

// recording returns turns for work on what is due to a stream and what it was sent, for which Store.mu is held for
// reading: others may read meanwhile. The work ends with the stream.
func (s *Store) recording(st *stream, peer *peerUsage) turns {
	return turns{
		locks: []sync.Locker{s.mu.RLocker(), &st.mu}, pace: s.pace, peer: peer,
		resume: func() bool { return !st.released },
	}
}
