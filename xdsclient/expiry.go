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

// expiry has the resource timers of a channel: one timer for all. Each subscription has its own deadline. Guarded by
// XDSClient.mu.
type expiry struct {
	stopwatch
	timeout time.Duration
	// fire is called by the timer, on a goroutine of its own.
	fire  func()
	timer *time.Timer
	// next is the earliest deadline, perhaps of a subscription that was answered meanwhile, or 0. armed says that the timer is
	// going to fire then.
	next  stopwatchTime
	armed bool
}

// expect starts the timer of a subscription. Its deadline is the latest, as all have the same timeout.
func (e *expiry) expect(s *subscription) {
	s.deadline = e.read() + stopwatchTime(e.timeout)
	if e.next == 0 {
		e.next = s.deadline
	}
	e.arm()
}

// arm sets the timer for the earliest deadline, if there is one. Each time that it fires costs a look at all subscriptions, so
// deadlines close to each other share one.
func (e *expiry) arm() {
	if e.armed || !e.running() || e.next == 0 {
		return
	}
	e.armed = true
	wait := max(time.Duration(e.next-e.read()), e.timeout/100)
	if e.timer == nil {
		e.timer = time.AfterFunc(wait, e.fire)
		return
	}
	e.timer.Reset(wait)
}

// overdue returns the subscriptions of a type that the server did not send in time, in order, and notes the earliest deadline
// of the others.
func (e *expiry) overdue(ts *typeState) (late []*subscription) {
	now := e.read()
	for s := range ts.subs.all() {
		switch {
		case !s.State.Pending() || s.deadline == 0:
		case s.deadline <= now:
			late = append(late, s)
		case e.next == 0 || s.deadline < e.next:
			e.next = s.deadline
		}
	}
	slices.SortFunc(late, func(a, b *subscription) int { return a.locator().Compare(b.locator()) })
	return late
}

// clear stops all timers.
func (e *expiry) clear() {
	if e.timer != nil {
		e.timer.Stop()
	}
	e.armed, e.next = false, 0
}
