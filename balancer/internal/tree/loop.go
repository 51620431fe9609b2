package tree

import (
	"context"
	"sync"
	"time"

	"github.com/dynxds/dynxds/balancer/internal/later"
)

// Loop runs functions one at a time, in the order in which they were posted. It has a goroutine
// only while there is something to run.
//
// It is there because of the locks around a balancer. A leaf policy reports its state while it
// holds its own locks, and needs the same locks when it is updated: a tree that updated a leaf
// from within a report would deadlock. Post locks only the queue, for the length of an append,
// and can be called from anywhere; functions on the loop run without any lock, and can call
// anything.
type Loop struct {
	settle func()
	ended  chan struct{} // closed by Close

	mu      sync.Mutex
	queue   []func()
	running bool // a goroutine works on what was queued
}

// NewLoop returns a Loop. settle is called on the loop each time that it has worked off what
// was queued, to do once what a burst of events has in common.
func NewLoop(settle func()) *Loop { return &Loop{settle: settle, ended: make(chan struct{})} }

// Post runs fn on the loop, after everything posted before. It does not wait, and may be called
// from anywhere. After Close it does nothing.
func (l *Loop) Post(fn func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed() {
		return
	}
	l.queue = append(l.queue, fn)
	if !l.running {
		l.running = true
		go l.work()
	}
}

// PostFromPick is Post for picks. It takes no lock, and therefore starts a goroutine.
func (l *Loop) PostFromPick(fn func()) { go l.Post(fn) }

// Do runs fn on the loop and waits for it. It must not be called on the loop. It returns false
// if the loop is closed, or closes meanwhile, whether or not fn has run.
func (l *Loop) Do(fn func()) bool { return l.Ask(context.Background(), fn) }

// Ask is Do for a caller that waits no longer than until ctx ends. If it returns false, fn may
// still run, so that the caller must not use what it writes.
func (l *Loop) Ask(ctx context.Context, fn func()) bool {
	done := make(chan struct{})
	l.Post(func() { fn(); close(done) })
	select {
	case <-done:
		return true
	case <-l.ended:
		return false
	case <-ctx.Done():
		return false
	}
}

// Close ends the loop, and drops what is queued or posted later. It is called on the loop.
func (l *Loop) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = nil
	close(l.ended)
}

func (l *Loop) closed() bool {
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

// work calls the queued functions in batches and settles after each batch, not when the queue is empty: a steady
// stream of functions must not put off the settling.
func (l *Loop) work() {
	for batch := l.take(); len(batch) > 0; batch = l.take() {
		for i, fn := range batch {
			batch[i] = nil // It may hold much, and those behind it may take long.
			fn()
			if l.closed() {
				return
			}
		}
		l.settle()
	}
}

// take returns what is queued. If that is nothing the goroutine must end.
func (l *Loop) take() []func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	batch := l.queue
	l.queue, l.running = nil, len(batch) > 0
	return batch
}

// Timer is started and stopped on the loop.
type Timer = later.Timer

// After runs fn on the loop once d has passed, unless the Timer is stopped or started again. It is called on the
// loop.
func (l *Loop) After(t *Timer, d time.Duration, fn func()) { t.Start(d, l.Post, fn) }
