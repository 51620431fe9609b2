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
	number int             // of the attempt; 1 is the first
	ctx    context.Context // of the attempt
	cancel context.CancelCauseFunc
	// late, if not nil, is called when a timeout has passed, which does not end the attempt then.
	late func()

	mu       sync.Mutex
	timer    *time.Timer // nil: the timeouts have not begun
	until    time.Time   // when the timeout passes that comes next
	answered bool        // a response has begun, so that per_try_timeout is over
}

// tryEnded is why the context of an attempt has ended: the error that the attempt ends with.
type tryEnded struct{ error }

// next returns the timeout that passes next if nothing is received from now on, 0 if there is none, and the words for an attempt
// that the timeout ends.
func (t *tryTimer) next() (d time.Duration, said string) {
	whole, idle := t.policy.PerTryTimeout, t.policy.PerTryIdleTimeout
	if whole > 0 && !t.answered && (idle <= 0 || whole <= idle) {
		return whole, "was not answered for %v, the per_try_timeout"
	}
	return max(idle, 0), "received nothing for %v, the per_try_idle_timeout"
}

// start begins the timeouts, unless they have begun.
func (t *tryTimer) start() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if d, _ := t.next(); d > 0 && t.timer == nil && t.ctx.Err() == nil {
		t.until = time.Now().Add(d)
		t.timer = time.AfterFunc(d, t.check)
	}
}

// received is called when response headers or a message have arrived. That does not move the timer, so that a message costs
// none.
func (t *tryTimer) received() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.answered = true
	d, _ := t.next()
	t.until = time.Now().Add(d)
}

// check is called when a timeout may have passed.
func (t *tryTimer) check() {
	t.mu.Lock()
	d, said := t.next()
	rest := time.Until(t.until)
	if d > 0 && rest > 0 && t.ctx.Err() == nil {
		t.timer.Reset(rest)
	}
	t.mu.Unlock()
	switch {
	case d == 0 || rest > 0 || t.ctx.Err() != nil:
	case t.late != nil:
		t.late()
	default:
		t.end(tryEnded{t.error(codes.DeadlineExceeded, fmt.Sprintf(said, d)+" of the route's retry_policy")})
	}
}

// error returns what the attempt ends with if it is not gRPC that ends it.
func (t *tryTimer) error(code codes.Code, why string) error {
	return status.Errorf(code, "dynxds: attempt %d of the RPC %s", t.number, why)
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

// end ends the context of the attempt, and the timeouts.
func (t *tryTimer) end(cause error) {
	if t == nil {
		return
	}
	t.cancel(cause)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer != nil {
		t.timer.Stop()
	}
}
