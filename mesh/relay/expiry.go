package relay

import (
	"time"
)

// after calls f with g.mu held when d has passed, unless the timer was stopped or replaced before, or the
// group has ended. The caller holds g.mu.
func (g *group) after(timer **time.Timer, d time.Duration, f func()) {
	var t *time.Timer
	t = time.AfterFunc(d, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if *timer == t && !g.closed {
			f()
		}
	})
	*timer = t
}

func stopTimer(timer **time.Timer) {
	if *timer != nil {
		(*timer).Stop()
		*timer = nil
	}
}

// expiry is the TTL of a resource. Guarded by group.mu.
type expiry struct {
	timer *time.Timer
	// expired is set when the TTL has passed.
	expired bool
}

// restart starts the TTL of a resource that upstream sent, or extended by a heartbeat. When it has passed,
// expire records that, and the store is updated.
func (e *expiry) restart(g *group, raw *resource, expire func()) {
	e.stop()
	e.expired = false
	if raw == nil || raw.TTL == 0 {
		return
	}
	g.after(&e.timer, time.Until(raw.time.Add(raw.TTL)), func() {
		e.expired = true
		expire()
		g.flushLater()
	})
}

func (e *expiry) stop() { stopTimer(&e.timer) }
