package xdsclient

import (
	"cmp"
	"slices"
	"time"
)

// expiry has the resource timers of a channel: one timer for all. Each subscription has its own deadline. Guarded by
// XDSClient.mu.
//
// The timers run on a stopwatch of the time in which the channel could receive an answer: while a
// stream is open and neither a watcher nor a rest (transport.Work) holds back the next read. So neither a broken stream nor a slow
// watcher makes a resource disappear (gRFC A57, "Handling Resources That Do Not Exist").
type expiry struct {
	timeout time.Duration
	// before is the time that the stopwatch had counted when it was last started. The stopwatch is stopped while started is zero.
	before  time.Duration
	started time.Time
	// fire is called by the timer, on a goroutine of its own. The timer is nil if it is not going to fire.
	fire  func()
	timer *time.Timer
	// next is the earliest deadline, perhaps of a subscription that was answered meanwhile, or 0.
	next time.Duration
}

func (e *expiry) running() bool { return !e.started.IsZero() }

// read reads the stopwatch.
func (e *expiry) read() time.Duration {
	if !e.running() {
		return e.before
	}
	return e.before + time.Since(e.started)
}

func (e *expiry) start() {
	if !e.running() {
		e.started = time.Now()
	}
}

func (e *expiry) stop() { e.before, e.started = e.read(), time.Time{} }

// expect starts the timer of a subscription. Its deadline is the latest, as all have the same timeout.
func (e *expiry) expect(s *subscription) {
	s.deadline = e.read() + e.timeout
	e.next = cmp.Or(e.next, s.deadline)
	e.arm()
}

// arm sets the timer for the earliest deadline, if there is one. Each time that it fires costs a look at all subscriptions, so
// deadlines close to each other share one.
func (e *expiry) arm() {
	if e.timer == nil && e.running() && e.next > 0 {
		e.timer = time.AfterFunc(max(e.next-e.read(), e.timeout/100), e.fire)
	}
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
	slices.SortFunc(late, byLocator)
	return late
}

// clear stops all timers.
func (e *expiry) clear() {
	e.disarm()
	e.next = 0
}

func (e *expiry) disarm() {
	if e.timer != nil {
		e.timer.Stop()
	}
	e.timer = nil
}
