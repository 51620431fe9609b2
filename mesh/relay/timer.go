package relay

import "time"

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
