package xdsclient

import (
	"slices"
	"time"
)

// stopwatchTime is the reading of a stopwatch.
type stopwatchTime time.Duration

// stopwatch measures the time in which a channel could receive an answer: while a
// stream is open and neither a watcher nor a rest (transport.Work) holds back the next read. Resource timers run on
// it, so that neither a broken stream nor a slow watcher makes a resource
// disappear (gRFC A57, "Handling Resources That Do Not Exist"). The zero value
// is stopped at 0.
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

// expiry has the resource timers of a channel: one timer for all, set for the
// earliest deadline or before it. Guarded by XDSClient.mu.
type expiry struct {
	stopwatch
	timeout time.Duration
	// fire is called by the timer, on a goroutine of its own.
	fire  func()
	timer *time.Timer
	// armed says that the timer is going to fire.
	armed bool
	// queue has the subscriptions that were requested, in the order of their
	// deadlines: all have the same timeout. Answered subscriptions, and those that ended, stay in
	// the queue until they reach its front or the queue has to grow.
	queue []expecting
}

// expecting is a subscription whose timer runs, unless it was answered.
type expecting struct {
	sub *subscription
	// deadline distinguishes a request from a later one for the same subscription.
	deadline stopwatchTime
}

func (x *expecting) answered() bool {
	return !x.sub.State.Pending() || x.sub.deadline != x.deadline
}

// expect starts the timer of a subscription.
func (e *expiry) expect(s *subscription) {
	e.skipAnswered()
	s.deadline = e.read() + stopwatchTime(e.timeout)
	if len(e.queue) == cap(e.queue) {
		e.queue = slices.DeleteFunc(e.queue, func(x expecting) bool { return x.answered() })
		e.queue = slices.Grow(e.queue, len(e.queue)+1) // so that each one is looked at once on average
	}
	e.queue = append(e.queue, expecting{s, s.deadline})
	e.arm()
}

// skipAnswered removes answered subscriptions from the front of the queue.
func (e *expiry) skipAnswered() {
	for len(e.queue) > 0 && e.queue[0].answered() {
		e.pop()
	}
}

func (e *expiry) pop() expecting {
	first := e.queue[0]
	e.queue[0] = expecting{}
	if e.queue = e.queue[1:]; len(e.queue) == 0 {
		e.queue = nil
	}
	return first
}

// nextOverdue removes and returns the next subscription that is overdue.
func (e *expiry) nextOverdue() (expecting, bool) {
	if e.skipAnswered(); len(e.queue) == 0 || e.queue[0].deadline > e.read() {
		return expecting{}, false
	}
	return e.pop(), true
}

// arm sets the timer for the earliest deadline, if there is one. A timer that is
// already set is set for an earlier one.
func (e *expiry) arm() {
	if e.skipAnswered(); e.armed || !e.running() || len(e.queue) == 0 {
		return
	}
	e.armed = true
	wait := time.Duration(e.queue[0].deadline - e.read())
	if e.timer == nil {
		e.timer = time.AfterFunc(wait, e.fire)
		return
	}
	e.timer.Reset(wait)
}

// clear stops all timers.
func (e *expiry) clear() {
	if e.timer != nil {
		e.timer.Stop()
	}
	e.armed, e.queue = false, nil
}
