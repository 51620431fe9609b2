package lookup

import (
	"math"
	"math/rand/v2"
	"time"
)

// schedule is when a name is looked up. Guarded by lookup.mu.
type schedule struct {
	phase    phase
	limits   Limits
	asked    bool      // there is demand for a look-up
	last     time.Time // end of the last look-up, zero if there was none
	retry    time.Time // start of the next look-up after failures
	failures int
	timer    *time.Timer // until the next look-up, if one is planned
	groups   []*group    // in which it waits; guarded by queue.mu
}

type phase int

const (
	resting phase = iota // before the first look-up, or between two
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

// watchesChangedLocked makes limits the shortest ones of the watches, of which there is at least one, and the groups theirs.
func (l *lookup) watchesChangedLocked() {
	l.limits = Limits{Least: math.MaxInt64}
	for w := range l.watches {
		l.limits.Least = min(l.limits.Least, w.limits.Least)
		if r := w.limits.Refresh; r > 0 && (l.limits.Refresh == 0 || r < l.limits.Refresh) {
			l.limits.Refresh = r
		}
	}
	if l.phase == queued {
		l.requeue(l.groupsLocked())
	}
	l.planLocked()
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
		l.stopTimerLocked()
		l.phase, l.asked = queued, false
		l.enqueue(l.groupsLocked())
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

// groupsLocked returns the groups of the watches.
func (l *lookup) groupsLocked() map[any]bool {
	groups := make(map[any]bool, 1)
	for w := range l.watches {
		groups[w.group] = true
	}
	return groups
}

// begin reports whether the name is still wanted.
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
