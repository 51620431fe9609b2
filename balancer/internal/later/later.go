// Package later has the timers of the balancer: their functions run where the state is guarded that they change.
package later

import "time"

// Timer runs a function later. The zero Timer is not pending.
type Timer struct{ timer *time.Timer }

// Start has fn called, by run, once d has passed, unless the Timer is stopped or started again before. Until then the Timer is pending.
// run and the methods exclude each other.
func (t *Timer) Start(d time.Duration, run func(func()), fn func()) {
	t.Stop()
	var timer *time.Timer
	timer = time.AfterFunc(d, func() {
		run(func() {
			if t.timer == timer { // Otherwise it fired before Stop.
				t.timer = nil
				fn()
			}
		})
	})
	t.timer = timer
}

// Stop cancels the function.
func (t *Timer) Stop() {
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
}

// Pending reports whether the function is to run.
func (t *Timer) Pending() bool { return t.timer != nil }
