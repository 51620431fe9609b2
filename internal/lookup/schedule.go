package lookup

import (
	"container/list"
	"math"
	"math/rand/v2"
	"sync"
	"time"
)

// MaxLookups is the number of look-ups that run at a time. Others are queued.
const MaxLookups = 100

// queue holds the names that wait for a look-up. Its goroutines end when it is empty.
var queue struct {
	mu      sync.Mutex
	waiting list.List // of *lookup
	workers int
}

// schedule is when a name is looked up. Guarded by lookup.mu.
type schedule struct {
	phase    phase
	limits   Limits
	asked    bool      // there is demand for a look-up
	last     time.Time // end of the last look-up
	retry    time.Time // start of the next look-up after failures
	failures int
	timer    *time.Timer   // until the next look-up, if one is planned
	place    *list.Element // in the queue; guarded by queue.mu
}

type phase int

const (
	fresh   phase = iota // never looked up
	resting              // between two look-ups
	queued
	running
	ended // no longer watched
)

// Intervals after failures are those of gRPC (connection-backoff.md).
const (
	firstRetry = 1600 * time.Millisecond
	lastRetry  = 2 * time.Minute
	growth     = 1.6
	jitter     = 0.2
)

// limitLocked sets the limits to the shortest ones of the watches. There is at least one.
func (l *lookup) limitLocked() {
	l.limits = Limits{Least: math.MaxInt64}
	for w := range l.watches {
		l.limits.Least = min(l.limits.Least, w.limits.Least)
		if r := w.limits.Refresh; r > 0 && (l.limits.Refresh == 0 || r < l.limits.Refresh) {
			l.limits.Refresh = r
		}
	}
}

func (l *lookup) ask() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.asked {
		l.asked = true
		l.planLocked()
	}
}

// planLocked sets the timer for the next look-up, or queues it.
func (l *lookup) planLocked() {
	if l.phase != resting {
		return
	}
	var next time.Time
	switch {
	case l.failures > 0:
		next = l.retry
	case l.asked:
		next = l.last.Add(l.limits.Least)
	case l.limits.Refresh > 0:
		next = l.last.Add(max(l.limits.Refresh, l.limits.Least))
	default:
		l.stopTimerLocked()
		return
	}
	wait := time.Until(next)
	switch {
	case wait <= 0:
		l.enqueueLocked()
	case l.timer == nil:
		l.timer = time.AfterFunc(wait, l.due)
	default:
		l.timer.Reset(wait)
	}
}

func (l *lookup) stopTimerLocked() {
	if l.timer != nil {
		l.timer.Stop()
	}
}

// due is called by the timer, which may be early.
func (l *lookup) due() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.planLocked()
}

func (l *lookup) enqueueLocked() {
	l.stopTimerLocked()
	l.phase, l.asked = queued, false
	queue.mu.Lock()
	defer queue.mu.Unlock()
	l.place = queue.waiting.PushBack(l)
	if queue.workers < MaxLookups {
		queue.workers++
		go work()
	}
}

// work looks up names until the queue is empty.
func work() {
	for l := next(); l != nil; l = next() {
		if l.begin() {
			l.finish(l.run())
		}
	}
}

// next removes the first name from the queue; nil ends the worker.
func next() *lookup {
	queue.mu.Lock()
	defer queue.mu.Unlock()
	first := queue.waiting.Front()
	if first == nil {
		queue.workers--
		return nil
	}
	l := queue.waiting.Remove(first).(*lookup)
	l.place = nil
	return l
}

func (l *lookup) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.phase != queued {
		return false
	}
	l.phase = running
	return true
}

func (l *lookup) finish(ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.phase != running {
		return
	}
	l.phase, l.last = resting, time.Now()
	if ok {
		l.failures = 0
	} else {
		l.retry = l.last.Add(retryAfter(l.failures))
		l.failures++
	}
	l.planLocked()
}

// retryAfter returns the backoff after a failure that follows the given number of others.
func retryAfter(failures int) time.Duration {
	wait := float64(firstRetry)
	for ; failures > 0 && wait < float64(lastRetry); failures-- {
		wait *= growth
	}
	return time.Duration(min(wait, float64(lastRetry)) * (1 + jitter*(2*rand.Float64()-1)))
}

func (l *lookup) endLocked() {
	l.phase = ended
	l.stopTimerLocked()
	queue.mu.Lock()
	defer queue.mu.Unlock()
	if l.place != nil {
		queue.waiting.Remove(l.place)
		l.place = nil
	}
}
