package lookup

import (
	"math"
	"time"

	"google.golang.org/grpc/backoff"

	"github.com/dynxds/dynxds/internal/retries"
)

// schedule is when a name is looked up. Guarded by mu.
type schedule struct {
	phase    phase
	asked    bool      // there is demand for a look-up
	last     time.Time // end of the last look-up, zero if there was none
	retry    time.Time // start of the next look-up after failures
	failures int
	timer    *time.Timer // until the next look-up, if one is planned
}

type phase int

const (
	resting phase = iota // before the first look-up, or between two
	queued
	running
	ended // no longer watched
)

// limits returns the shortest ones of the watches, of which there is at least one.
func (l *lookup) limits() Limits {
	shortest := Limits{Least: math.MaxInt64}
	for w := range l.watches {
		shortest.Least = min(shortest.Least, w.limits.Least)
		if r := w.limits.Refresh; r > 0 && (shortest.Refresh == 0 || r < shortest.Refresh) {
			shortest.Refresh = r
		}
	}
	return shortest
}

// plan sets the timer for the next look-up, or queues it.
func (l *lookup) plan() {
	if l.phase != resting {
		return
	}
	var next time.Time
	switch limits := l.limits(); {
	case l.failures > 0:
		next = l.retry
	case l.asked:
		next = l.last.Add(limits.Least)
	case limits.Refresh > 0:
		next = l.last.Add(max(limits.Refresh, limits.Least))
	default:
		l.stopTimer()
		return
	}
	wait := time.Until(next)
	switch {
	case wait <= 0:
		l.stopTimer()
		l.phase, l.asked = queued, false
		for w := range l.watches {
			w.enqueue()
		}
		startLookups()
	case l.timer == nil:
		l.timer = time.AfterFunc(wait, l.due)
	default:
		l.timer.Reset(wait)
	}
}

func (l *lookup) stopTimer() {
	if l.timer != nil {
		l.timer.Stop()
	}
}

// due is called by the timer, which may be early.
func (l *lookup) due() {
	mu.Lock()
	defer mu.Unlock()
	l.plan()
}

// finish ends a look-up. ok: it has found addresses.
func (l *lookup) finish(ok bool) {
	if l.phase == ended {
		return
	}
	l.phase, l.last = resting, time.Now()
	if ok {
		l.failures = 0
	} else {
		l.failures++
		l.retry = l.last.Add(retries.After(l.failures, backoff.DefaultConfig)) // as gRPC's resolver "dns" does
	}
	l.plan()
}
