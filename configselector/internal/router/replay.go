package router

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/retries"
	"github.com/dynxds/dynxds/internal/rpctrace"
)

// replay is an RPC that is sent again as a whole until it is decided which attempt is the RPC: after an attempt that has
// failed (gRFC A6, "When Retries are Valid"), and, if the policy hedges, beside an attempt that is late (Envoy's
// hedge_on_per_try_timeout). Response headers decide, and so do more messages than the buffer holds. Hedges begin when the
// request is complete, so that the application sends on one stream.
//
// Each attempt has a goroutine that follows it, until the attempt is answered or has failed, and then begins the next
// attempt. This file has the attempts; replaystream.go has the stream that the application uses.
//
//	attempt 0 ends UNAVAILABLE   → its goroutine begins attempt 1 after the backoff
//	attempt 1 is late            → another goroutine begins attempt 2 after the backoff, 1 goes on
//	attempt 1 ends UNAVAILABLE   → nothing, as 2 goes on
//	attempt 2 is answered        → it is the RPC
type replay struct {
	request *request
	opts    []grpc.CallOption
	// asked is where filters want the end of a hedged RPC reported.
	asked callOptions

	mu        sync.Mutex
	changed   sync.Cond // of any field below
	hedges    bool      // the policy does
	launching bool      // an attempt is about to begin
	closed    bool      // CloseSend was called
	complete  bool      // the application sends no more messages
	retry     retrier
	latest    *attempt // the last that has begun, or is about to begin
	failed    *attempt // the last that failed
	refused   *attempt // the attempt, the last, that the picker refused
	winner    *attempt // the attempt that is the RPC; nil: not decided

	// waits is done when an attempt is not waited for any more: with the RPC or, if the policy hedges, by decided.
	waits   context.Context
	decided context.CancelFunc

	buffer []grpcbridge.Encoded // messages sent, a unary one for the second attempt; nil once the RPC is decided
	codec  grpcbridge.RawCodec
	left   int // bytes that the buffer has room for
	reply  any // of a unary RPC
}

// begin begins the first attempt of r, which is prepared.
func (p *replay) begin(r *request, retry retrier) {
	p.request, p.opts, p.retry, p.hedges = r, r.opts, retry, retry.hedges()
	p.changed.L, p.waits = &p.mu, &r.decision
	if p.hedges {
		p.waits, p.decided = context.WithCancel(&r.decision)
		p.asked = p.opts
		p.opts = p.asked.without(nil, writes) // Concurrent attempts would write to the same variables.
	}
	p.codec, p.left = grpcbridge.RawCodecOf(p.opts), bufferSize(p.opts)
	a := &r.attempt
	p.add(a)
	if retry.max <= 1 {
		p.decideLocked(a)
	}
	a.open()
	a.begun = !a.unopened
}

// add prepares an attempt. It has a context of its own if the picker needs to know it, or a timer may end it.
func (p *replay) add(a *attempt) {
	r, opts := p.request, p.opts
	p.latest = a
	if a.number > 0 {
		opts = slices.Clip(opts) // The first attempt uses the room behind them.
	}
	if p.codec.CodecV2 != nil && (a.number > 0 || p.hedges && r.call.unary()) {
		opts = append(slices.Clip(opts), grpc.ForceCodecV2(p.codec))
	}
	a.of(r.call, &r.decision, opts)
	if a.number == 0 && !p.retry.limited && p.retry.hosts == nil {
		return
	}
	d := r.decision.ForAttempt()
	a.decision, d.Extra.Hosts = d, p.retry.hosts
	if d.Extra.Retry = a.number > 0; d.Extra.Retry {
		d.Context = metadata.AppendToOutgoingContext(d.Context, previousAttempts, strconv.Itoa(a.number))
	}
	if !p.retry.limited {
		return
	}
	t := &tryTimer{policy: p.retry.policy, number: a.number + 1}
	t.ctx, t.cancel = context.WithCancelCause(d.Context)
	a.timer, d.Context = t, t.ctx
	if r.call.unary() {
		// The request of a unary RPC is sent at once. Streams begin the timeouts themselves.
		d.Extra.Picked = t.start
	}
	if p.hedges {
		t.late = func() { p.late(a) }
	}
}

// follow sees to attempt a until it is answered or has failed, and then to the attempts that it begins.
func (p *replay) follow(a *attempt) {
	for a != nil {
		answered := p.answered(a)
		p.mu.Lock()
		a.settled = true
		p.changed.Broadcast() // before the delay of the next attempt
		var next *attempt
		switch {
		case p.winner != nil:
		case answered:
			p.decideLocked(a)
		default:
			next = p.failedLocked(a)
		}
		p.mu.Unlock()
		a = next
	}
}

// answered waits until a response to a has begun, or a has ended, which a unary RPC does meanwhile. It reports whether a is
// answered or has succeeded.
func (p *replay) answered(a *attempt) bool {
	if a.call.unary() {
		reply := p.reply
		if p.hedges {
			reply = &a.reply
		}
		_ = a.RecvMsg(reply)
	}
	if md, err := a.Header(); md != nil || err != nil {
		return true
	}
	a.finished.Wait()
	return a.err == nil
}

// failedLocked is called when attempt a has failed, and begins another one and returns it if the policy says so.
func (p *replay) failedLocked(a *attempt) (next *attempt) {
	trailer := a.Trailer()
	switch d := a.decision; {
	case a.number > 0 && (d.Failure() == rpctrace.MaxRetries || p.hedges && d.Dropped()):
		p.refused = a
	case p.request.decision.Err() != nil || d.Dropped() || !p.retry.retriable(d, a.err, trailer):
		p.decideLocked(a)
		return nil
	case p.latest == a && !p.launching:
		p.failed = a
		next = p.launchLocked(a.err, trailer)
	default:
		p.failed = a
		if delay, _ := pushback(trailer); delay < 0 {
			p.retry.max = p.retry.made + 1
		}
	}
	p.endLocked()
	return next
}

// late is called when attempt a has taken per_try_timeout, or received nothing for per_try_idle_timeout.
func (p *replay) late(a *attempt) {
	p.mu.Lock()
	var hedge *attempt
	if p.winner == nil && p.latest == a && !a.settled && !p.launching {
		hedge = p.launchLocked(nil, nil)
		p.endLocked()
	}
	p.mu.Unlock()
	p.follow(hedge)
}

// launchLocked begins another attempt after a delay, during which p.mu is not held. launchLocked returns nil if the policy allows
// no further attempt, the RPC has been decided or the context of the RPC has ended. cause and trailer are the error and the trailer
// of the attempt before, or nil if that attempt goes on.
func (p *replay) launchLocked(cause error, trailer metadata.MD) (a *attempt) {
	if !p.fits() || !p.retry.decideRetry(trailer) {
		return nil
	}
	p.launching = true
	if t := p.request.extra.Trace; t != nil {
		t.Retried(rpctrace.Retry{Attempt: p.retry.made + 1, Delay: p.retry.delay, Err: cause})
	}
	begin, idle := time.Now(), !p.runs()
	p.mu.Unlock()
	_ = retries.Wait(p.waits, p.retry.delay)
	p.mu.Lock()
	if idle {
		p.retry.waited += time.Since(begin)
	}
	if p.winner == nil && p.waits.Err() == nil {
		a = &attempt{number: p.retry.made, earlier: p.latest, count: rpctrace.Resending(p.request.extra.Trace)}
		p.add(a)
		p.openLocked(a)
	}
	p.launching = false
	p.changed.Broadcast()
	return a
}

// openLocked begins attempt a, and sends all that the application has sent meanwhile. If that fails, the attempt has ended, which its
// follower finds. p.mu is not held while gRPC is called.
func (p *replay) openLocked(a *attempt) {
	p.mu.Unlock()
	a.open()
	p.mu.Lock()
	for i := 0; i < len(p.buffer); i++ {
		m := p.buffer[i]
		p.mu.Unlock()
		_ = a.SendMsg(m)
		p.mu.Lock()
	}
	a.begun = !a.unopened
	closed, complete := p.closed, p.complete
	p.mu.Unlock()
	if closed {
		_ = a.CloseSend()
	}
	if complete {
		a.timer.start()
	}
	p.mu.Lock()
}

// runs reports whether an attempt is under way.
func (p *replay) runs() bool {
	for a := p.latest; a != nil; a = a.earlier {
		if !a.settled {
			return true
		}
	}
	return false
}

// endLocked ends the RPC if it is not decided, and no attempt is under way or about to begin.
func (p *replay) endLocked() {
	if p.winner != nil || p.launching || p.runs() {
		return
	}
	if err := p.request.decision.Err(); err != nil {
		p.decideLocked(p.endWith(status.FromContextError(err).Err()))
	} else if p.refused != nil {
		p.decideLocked(p.endWith(notRetried(p.failed.err, p.refused.err)))
	} else {
		p.decideLocked(p.failed)
	}
}

// endWith returns an attempt that ends with err, and otherwise like the one that failed last.
func (p *replay) endWith(err error) *attempt {
	a := &attempt{call: p.request.call, decision: p.failed.decision, settled: true, unopened: true, err: err}
	a.ClientStream = httpfilter.EndedStream(p.failed.Context(), err, p.failed.Trailer())
	a.once.Do(func() {}) // It has ended.
	return a
}

// decideLocked makes a the RPC, and ends the other attempts.
func (p *replay) decideLocked(a *attempt) {
	p.winner, p.buffer = a, nil
	a.decision.Won()
	if p.hedges {
		p.decided()
		for b := p.latest; b != nil; b = b.earlier {
			if b != a {
				b.finish(b.timer.error(codes.Canceled, "was given up for another one"))
			}
		}
	}
	p.recordRetries()
	p.changed.Broadcast()
}

// fits reports whether the RPC can be sent again. What does not fit of a stream has decided it.
func (p *replay) fits() bool {
	return !p.request.call.unary() || len(p.buffer) > 0 || p.put(p.request.attempt.message)
}

// put adds a message to the buffer (gRFC A6, "Memory Management (Buffering)"). It reports false if the message cannot be
// encoded, or there is no room.
func (p *replay) put(m any) bool {
	e, err := p.codec.Encode(m)
	if p.left -= len(e) + frameHeader; err != nil || p.left < 0 {
		return false
	}
	p.buffer = append(p.buffer, e)
	return true
}
