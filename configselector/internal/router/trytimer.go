package router

import (
	"context"
	"fmt"
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
	number int // of the attempt; 1 is the first
	cancel context.CancelFunc
	// late, if not nil, is called when a timeout has passed that does not end the attempt. It takes
	// replay.mu, which comes before mu.
	late func()

	mu       sync.Mutex
	started  bool
	over     bool        // the attempt has ended
	response *time.Timer // for per_try_timeout; nil: not running
	idle     *time.Timer // for per_try_idle_timeout; nil: not running
	last     time.Time   // when something was received, with idle; zero: not yet
	err      error       // why the timer has ended the attempt
}

// start begins the timeouts, unless they have begun. It reports whether they begin now.
func (t *tryTimer) start() bool {
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.started || t.over {
		return false
	}
	t.started = true
	if d := t.policy.PerTryTimeout; d > 0 {
		t.response = time.AfterFunc(d, t.unanswered)
	}
	if d := t.policy.PerTryIdleTimeout; d > 0 {
		t.idle = time.AfterFunc(d, t.idled)
	}
	return true
}

// received is called when response headers or a message have arrived.
func (t *tryTimer) received() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	stopTimer(&t.response)
	if t.idle != nil {
		t.last = time.Now() // Which idled looks at, so that a message does not cost a timer.
	}
}

func (t *tryTimer) unanswered() {
	t.mu.Lock()
	late := t.response != nil && t.expireLocked("was not answered", t.policy.PerTryTimeout, "per_try_timeout")
	t.mu.Unlock()
	if late {
		t.late()
	}
}

func (t *tryTimer) idled() {
	t.mu.Lock()
	late := false
	if t.idle != nil {
		if rest := t.policy.PerTryIdleTimeout - time.Since(t.last); rest > 0 {
			t.idle.Reset(rest)
		} else {
			late = t.expireLocked("received nothing", t.policy.PerTryIdleTimeout, "per_try_idle_timeout")
		}
	}
	t.mu.Unlock()
	if late {
		t.late()
	}
}

// expireLocked ends the attempt, or reports that the caller has to call late, without t.mu.
func (t *tryTimer) expireLocked(what string, d time.Duration, field string) bool {
	if t.policy.Hedges {
		return t.late != nil
	}
	t.err = status.Error(codes.DeadlineExceeded, fmt.Sprintf(
		"dynxds: attempt %d of the RPC %s for %v, the %s of the route's retry_policy", t.number, what, d, field))
	t.endLocked()
	return false
}

// abandon ends an attempt that is not needed any more, and returns the error that it ends with.
func (t *tryTimer) abandon() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err = status.Error(codes.Canceled, fmt.Sprintf("dynxds: attempt %d of the RPC was given up for another one", t.number))
	t.endLocked()
	return t.err
}

// explain returns the error of the attempt: that of the timer if it has ended the attempt, or
// else err, which gRPC has returned.
func (t *tryTimer) explain(err error) error {
	if t == nil || status.Code(err) != codes.Canceled {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return t.err
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
	t.endLocked()
}

func (t *tryTimer) endLocked() {
	t.over = true
	stopTimer(&t.response)
	stopTimer(&t.idle)
	t.cancel()
}

func stopTimer(t **time.Timer) {
	if *t != nil {
		(*t).Stop()
		*t = nil
	}
}
