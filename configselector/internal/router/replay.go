package router

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/rpctrace"
)

// replay is an RPC that is sent again as a whole until it is decided which attempt is the RPC: after an attempt that has
// failed (gRFC A6, "When Retries are Valid"), and, if the policy hedges, beside an attempt that is late (Envoy's
// hedge_on_per_try_timeout). Response headers decide, and so do more messages than the buffer holds. Hedges begin when the
// request is complete, so that the application sends on one stream. This file has the decisions, replaystream.go the stream.
//
//	after(0) ended UNAVAILABLE   → attempt 1 begins after the backoff
//	late(1)                      → attempt 2 begins after the backoff, 1 goes on
//	after(1) ended UNAVAILABLE   → waits for 2
//	answered(2)                  → 2 is the RPC
type replay struct {
	request *request
	first   attempt
	opts    []grpc.CallOption
	room    [8]grpc.CallOption // for opts of a unary RPC, unless there are more
	// asked is where filters want the end of a hedged RPC reported.
	asked callOptions

	mu        sync.Mutex
	changed   sync.Cond // of any field below
	hedges    bool      // the policy does
	launching bool      // an attempt is about to begin
	closed    bool      // CloseSend was called
	complete  bool      // the application sends no more messages
	retry     retrier
	latest    *attempt      // the last that has begun, or is about to begin
	failed    *attempt      // the last that failed
	refused   *attempt      // the attempt, the last, that the picker refused
	winner    *attempt      // the attempt that is the RPC; nil: not decided
	decided   chan struct{} // closed when there is a winner; nil unless the policy hedges

	buffer []grpcbridge.Encoded // messages sent, a unary one for the second attempt; nil once the RPC is decided
	codec  grpcbridge.RawCodec
	left   int // bytes that the buffer has room for
}

// newReplay returns the stream of an RPC that has begun.
func newReplay(r *request, retry retrier) (*replay, error) {
	p := &replay{request: r, retry: retry, hedges: retry.hedges()}
	p.changed.L = &p.mu
	if r.call.unary() {
		p.opts = r.unreported(p.room[:0])
	} else {
		p.opts = append(slices.Clip(r.rpc.Options), r.rpc.AddedOptions()...)
	}
	if p.hedges {
		p.decided = make(chan struct{})
		p.asked = p.opts
		p.opts = p.asked.without(nil, writes) // Concurrent attempts would write to the same variables.
	}
	p.codec, p.left = grpcbridge.RawCodecOf(p.opts), bufferSize(p.opts)
	first := &p.first
	p.add(first)
	if retry.max <= 1 {
		p.answered(first)
	}
	first.begun = true
	if p.open(first); first.unopened {
		if a := p.after(first); a.unopened {
			return nil, a.err
		}
	}
	return p, nil
}

// add prepares an attempt. It has a context of its own if the picker needs to know it, or a timer may end it.
func (p *replay) add(a *attempt) {
	r := p.request
	p.latest = a
	a.of(r, &r.decision)
	if a.number == 0 && !p.retry.limited && p.retry.hosts == nil {
		return
	}
	d, ctx := r.decision.ForAttempt()
	a.decision, ctx.Hosts = d, p.retry.hosts
	if ctx.Retry = a.number > 0; ctx.Retry {
		ctx.Context = metadata.AppendToOutgoingContext(ctx.Context, previousAttempts, strconv.Itoa(a.number))
	}
	if !p.retry.limited {
		return
	}
	t := &tryTimer{policy: p.retry.policy, number: a.number + 1}
	t.ctx, t.cancel = context.WithCancelCause(ctx.Context)
	a.timer, ctx.Context = t, t.ctx
	if r.call.unary() {
		// The request of a unary RPC is sent at once. Streams begin the timeouts themselves.
		ctx.Picked = func() { t.start() }
	}
	if p.hedges {
		ctx.Hedged = true
		t.late = func() { p.late(a) }
	}
}

// after is called when attempt a has ended, or is about to, without response headers. It waits
// until the RPC is decided, and returns the winner, or until another attempt has a stream, and returns that.
func (p *replay) after(a *attempt) *attempt {
	if a.finished.Wait(); a.err == nil {
		return p.answered(a)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.winner == nil {
		switch {
		case !a.over:
			a.over = true
			if p.goesOn(a, a.ClientStream.Trailer()) {
				p.launch(a.err)
			}
		case p.launching:
			p.changed.Wait()
		case !p.latest.over && p.latest.unopened:
			a = p.latest
		case !p.latest.over:
			return p.latest
		case p.runs():
			p.changed.Wait()
		default:
			p.decideLocked(p.end())
		}
	}
	return p.winner
}

// goesOn notes that attempt a has failed, and reports whether another attempt follows.
func (p *replay) goesOn(a *attempt, trailer metadata.MD) bool {
	switch d := a.decision; {
	case a.number > 0 && (d.Failure() == rpctrace.MaxRetries || p.hedges && d.Dropped()):
		p.refused = a
		return false
	case p.request.decision.Err() != nil || d.Dropped() || !p.retry.retriable(d, a.err, trailer):
		p.decideLocked(a)
		return false
	}
	p.failed = a
	if p.latest != a || p.launching {
		if delay, _ := pushback(trailer); delay < 0 {
			p.retry.max = p.retry.made + 1
		}
		return false
	}
	return p.fits() && p.retry.decideRetry(trailer)
}

// late is called when attempt a has taken per_try_timeout, or received nothing for per_try_idle_timeout.
func (p *replay) late(a *attempt) {
	p.mu.Lock()
	var hedge *attempt
	if p.winner == nil && p.latest == a && !a.over && !p.launching && p.fits() && p.retry.decideRetry(nil) {
		hedge = p.launch(nil)
	}
	p.mu.Unlock()
	if hedge != nil {
		p.followed(hedge)
	}
}

// launch begins the next attempt after the delay, during which p.mu is not held, or returns nil if the RPC has
// been decided, or its context has ended. cause is the error of the attempt before, or nil if that goes on.
func (p *replay) launch(cause error) *attempt {
	p.launching = true
	defer func() {
		p.launching = false
		p.changed.Broadcast()
	}()
	if t := p.request.extra.Trace; t != nil {
		t.Retried(rpctrace.Retry{Attempt: p.retry.made + 1, Delay: p.retry.delay, Err: cause})
	}
	begin, idle := time.Now(), !p.runs()
	p.mu.Unlock()
	err := p.retry.wait(&p.request.decision, p.decided)
	p.mu.Lock()
	if idle {
		p.retry.waited += time.Since(begin)
	}
	switch {
	case p.winner != nil:
		return nil
	case err != nil:
		if !p.runs() {
			p.decideLocked(p.endWith(err))
		}
		return nil
	}
	a := &attempt{number: p.retry.made, earlier: p.latest, count: rpctrace.Resending(p.request.extra.Trace)}
	p.add(a)
	p.mu.Unlock()
	p.begin(a)
	p.mu.Lock()
	a.begun = true
	return a
}

// runs reports whether an attempt is under way.
func (p *replay) runs() bool {
	for a := p.latest; a != nil; a = a.earlier {
		if !a.over {
			return true
		}
	}
	return false
}

// end returns the attempt that the RPC ends with after all have failed.
func (p *replay) end() *attempt {
	if p.refused == nil {
		return p.failed
	}
	return p.endWith(notRetried(p.failed.err, p.refused.err))
}

// endWith returns an attempt that ends with err, and otherwise like the one that failed last.
func (p *replay) endWith(err error) *attempt {
	a := &attempt{request: p.request, decision: &p.request.decision, over: true, unopened: true, err: err}
	a.ClientStream = httpfilter.EndedStream(p.failed.Context(), err, p.failed.Trailer())
	a.once.Do(func() {}) // It has ended.
	return a
}

// decideLocked makes a the RPC, and ends the other attempts.
func (p *replay) decideLocked(a *attempt) {
	p.winner = a
	if p.hedges {
		close(p.decided)
		a.decision.Won()
		for b := p.latest; b != nil; b = b.earlier {
			if b != a {
				b.finish(b.timer.abandon())
			}
		}
	}
	p.recordRetries()
	p.changed.Broadcast()
}

// answered is called when a response to a has begun, or nothing more can be sent again. It returns the attempt
// that is the RPC.
func (p *replay) answered(a *attempt) *attempt {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.winner == nil {
		p.decideLocked(a)
	}
	return p.winner
}

// decidedFor returns the attempt that is the RPC, or nil.
func (p *replay) decidedFor() *attempt {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.winner
}
