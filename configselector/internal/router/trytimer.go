package router

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdsresource"
)

// tryTimer ends one attempt when it takes longer than per_try_timeout or per_try_idle_timeout of
// the route's retry policy. As in Envoy, both begin when the request has been sent, and an
// endpoint was found for it. A nil tryTimer bounds nothing.
type tryTimer struct {
	policy *xdsresource.RetryPolicy
	number int             // of the attempt; 1 is the first
	ctx    context.Context // of the attempt
	cancel context.CancelCauseFunc
	// late, if not nil, is called when a timeout has passed that does not end the attempt. It takes
	// replay.mu, which comes before mu.
	late func()

	mu       sync.Mutex
	timer    *time.Timer // for the timeout that passes next; nil: they have not begun
	over     bool        // the attempt has ended, or is late
	begun    time.Time
	answered bool      // a response has begun, so that per_try_timeout is over
	last     time.Time // when something was received; at first begun
}

// tryEnded is why the context of an attempt has ended: the error that the attempt ends with.
type tryEnded struct{ error }

// start begins the timeouts, unless they have begun. It reports whether they begin now.
func (t *tryTimer) start() bool {
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer != nil || t.over {
		return false
	}
	t.begun = time.Now()
	t.last = t.begun
	rest, _ := t.next()
	t.timer = time.AfterFunc(rest, t.check)
	return true
}

// received is called when response headers or a message have arrived. That does not move the timer, so that a message costs
// none.
func (t *tryTimer) received() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.answered, t.last = true, time.Now()
}

// next returns how long it is until a timeout passes, and whether that is per_try_idle_timeout.
func (t *tryTimer) next() (rest time.Duration, idle bool) {
	rest = math.MaxInt64
	if d := t.policy.PerTryTimeout; d > 0 && !t.answered {
		rest = time.Until(t.begun.Add(d))
	}
	if d := t.policy.PerTryIdleTimeout; d > 0 {
		if until := time.Until(t.last.Add(d)); until < rest {
			return until, true
		}
	}
	return rest, false
}

// check is called when a timeout may have passed.
func (t *tryTimer) check() {
	t.mu.Lock()
	rest, idle := t.next()
	late := t.late
	switch {
	case t.over:
		late = nil
	case rest > 0:
		t.timer.Reset(rest)
		late = nil
	case t.policy.Hedges:
		t.over = true
	case idle:
		t.endLocked(t.error(codes.DeadlineExceeded, "received nothing for %v, the per_try_idle_timeout of the route's retry_policy", t.policy.PerTryIdleTimeout))
	default:
		t.endLocked(t.error(codes.DeadlineExceeded, "was not answered for %v, the per_try_timeout of the route's retry_policy", t.policy.PerTryTimeout))
	}
	t.mu.Unlock()
	if late != nil {
		late()
	}
}

func (t *tryTimer) error(code codes.Code, format string, args ...any) tryEnded {
	return tryEnded{status.Errorf(code, "dynxds: attempt %d of the RPC %s", t.number, fmt.Sprintf(format, args...))}
}

// abandon ends an attempt that is not needed any more, and returns the error that it ends with.
func (t *tryTimer) abandon() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	ended := t.error(codes.Canceled, "was given up for another one")
	t.endLocked(ended)
	return ended.error
}

// explain returns the error of the attempt: that of the timer if it has ended the attempt, or
// else err, which gRPC has returned.
func (t *tryTimer) explain(err error) error {
	if t == nil || status.Code(err) != codes.Canceled {
		return err
	}
	if ended, ok := context.Cause(t.ctx).(tryEnded); ok {
		return ended.error
	}
	return err
}

// end is called when the attempt has ended. It releases the context and the runtime's timer.
func (t *tryTimer) end() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.endLocked(nil)
}

func (t *tryTimer) endLocked(cause error) {
	t.over = true
	if t.timer != nil {
		t.timer.Stop()
	}
	t.cancel(cause)
}
