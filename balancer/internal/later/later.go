// Package later has the timers of the balancer: their functions run where the state is guarded that they change.
package later

import "time"

// Timer runs a function later. A nil Timer is not pending.
type Timer struct {
	timer *time.Timer
	// stopped is for a timer that fired before Stop but whose function has not run yet.
	stopped bool
}

// After has run run fn once d has passed, unless the Timer is stopped. run, After and Stop exclude each other.
func After(d time.Duration, run func(func()), fn func()) *Timer {
	t := new(Timer)
	t.timer = time.AfterFunc(d, func() {
		run(func() {
			if !t.stopped {
				fn()
			}
		})
	})
	return t
}

// Stop cancels the function. It may be called on a nil Timer.
func (t *Timer) Stop() {
	if t != nil {
		t.stopped = true
		t.timer.Stop()
	}
}
