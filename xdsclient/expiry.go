package xdsclient

import "time"

// stopwatchTime is the reading of a stopwatch.
type stopwatchTime time.Duration

// stopwatch measures the time in which a channel could hear an answer: while a
// stream is open and no watcher holds back the next read. Resource timers run on
// it, so that neither a broken stream nor a slow watcher makes a resource
// disappear (gRFC A57, "Handling Resources That Do Not Exist"). The zero value
// stands still at 0.
type stopwatch struct {
	before  time.Duration
	started time.Time
}

func (s *stopwatch) running() bool { return !s.started.IsZero() }

func (s *stopwatch) read() stopwatchTime {
	if !s.running() {
		return stopwatchTime(s.before)
	}
	return stopwatchTime(s.before + time.Since(s.started))
}

func (s *stopwatch) start() {
	if !s.running() {
		s.started = time.Now()
	}
}

func (s *stopwatch) stop() {
	s.before = time.Duration(s.read())
	s.started = time.Time{}
}

// expiry is the resource timers of a channel: one timer for all, set for the
// earliest deadline or before it. Guarded by XDSClient.mu.
type expiry struct {
	stopwatch
	timeout time.Duration
	// fire is what the timer calls, on a goroutine of its own.
	fire  func()
	timer *time.Timer
	// armed says that the timer is going to fire.
	armed bool
}

// deadline returns when a resource that is asked for now is overdue.
func (e *expiry) deadline() stopwatchTime { return e.read() + stopwatchTime(e.timeout) }

// arm has the timer fire no later than at the deadline. As all resources have the
// same time, a timer that is set already is set for an earlier one.
func (e *expiry) arm(deadline stopwatchTime) {
	if e.armed || !e.running() {
		return
	}
	e.armed = true
	wait := time.Duration(deadline - e.read())
	if e.timer == nil {
		e.timer = time.AfterFunc(wait, e.fire)
		return
	}
	e.timer.Reset(wait)
}

// disarm stops the timer.
func (e *expiry) disarm() {
	if e.timer != nil {
		e.timer.Stop()
	}
	e.armed = false
}
