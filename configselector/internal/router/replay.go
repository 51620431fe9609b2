package router

import (
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/rpctrace"
)

// replay sends one RPC again until it is decided which attempt is the RPC: after an attempt that has
// failed (gRFC A6), and, if the policy hedges, beside an attempt that is late (Envoy's
// hedge_on_per_try_timeout). It handles neither messages nor streams. Goroutines follow the attempts, and
// report how they end.
//
//	after(0) ended UNAVAILABLE   → attempt 1 begins after the backoff
//	late(1)                      → attempt 2 begins after the backoff, 1 goes on
//	after(1) ended UNAVAILABLE   → waits for 2
//	answered(2)                  → 2 is the RPC
type replay struct {
	request *request
	sender  sender

	mu        sync.Mutex
	changed   sync.Cond // of any field below
	retry     retrier
	latest    *attempt      // the last that has begun, or is about to begin
	launching bool          // an attempt is about to begin
	failed    *attempt      // the last that failed
	refused   *attempt      // the attempt, the last, that the picker refused
	winner    *attempt      // the attempt that is the RPC; nil: not decided
	decided   chan struct{} // closed when there is a winner; nil unless the policy hedges
}

// sender sends the attempts of a unary or of a streaming RPC.
type sender interface {
	// begin opens an attempt that is not the first.
	begin(*attempt)
	// follow is called on the goroutine of a hedge until the RPC is decided.
	follow(*attempt)
	// fits reports whether the RPC can be sent again.
	fits() bool
}

// attempt is one attempt of an RPC: a request as gRPC gets it.
type attempt struct {
	number   int      // 0 is the first
	earlier  *attempt // nil: none
	decision *decision.Decision
	timer    *tryTimer   // or nil
	ended    func(error) // reports the end to the trace
	count    func()      // counts the attempt in the metrics of the trace's observer; of an attempt after the first

	// replay.mu guards these.
	begun bool
	over  bool // it has failed

	err     error       // that it has ended with
	trailer metadata.MD // replay.mu guards it

	// A unary RPC has these.
	message any  // the request
	sent    bool // gRPC has got it
	header  metadata.MD
	peer    peer.Peer
	reply   received // if the RPC is hedged

	// A streaming RPC has these.
	grpc.ClientStream
	unopened bool          // gRPC has no stream
	finished chan struct{} // closed when gRPC has finished the stream, with err
	once     sync.Once
}

// init prepares the first attempt.
func (p *replay) init(r *request, retry retrier, first *attempt, s sender) {
	p.request, p.sender, p.retry, p.changed.L = r, s, retry, &p.mu
	if retry.hedges() {
		p.decided = make(chan struct{})
	}
	p.add(first)
}

// add prepares an attempt.
func (p *replay) add(a *attempt) {
	p.latest = a
	a.decision, a.timer = p.request.attempt(a.number, p.retry.hosts)
	a.ended = p.request.endReporter(a.number+1, a.timer)
	if p.decided != nil {
		a.decision.Attempt().Hedged = true
		a.timer.late = func() { p.late(a) }
	}
}

// after is called when attempt a has ended with a.err, which is not nil, and without response headers. It waits
// until the RPC is decided, and returns the winner, or until another attempt has begun, and returns that. launched
// reports that the attempt has begun on the caller's behalf, for the caller to follow.
func (p *replay) after(a *attempt, trailer metadata.MD) (next *attempt, launched bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !a.over {
		a.over, a.trailer = true, trailer
		if p.winner == nil && p.goesOn(a) {
			if next := p.launch(a.err); next != nil {
				return next, true
			}
		}
	}
	for p.winner == nil {
		switch {
		case p.launching:
			p.changed.Wait()
		case !p.latest.over:
			return p.latest, false
		case p.runs():
			p.changed.Wait()
		default:
			p.decideLocked(p.end())
		}
	}
	return p.winner, false
}

// goesOn notes that attempt a has failed, and reports whether another attempt follows.
func (p *replay) goesOn(a *attempt) bool {
	switch d := a.decision; {
	case a.number > 0 && (d.Failure() == rpctrace.MaxRetries || p.decided != nil && d.Dropped()):
		p.refused = a
		return false
	case p.request.decision.Err() != nil || d.Dropped() || !p.retry.retriable(d, a.err, a.trailer):
		p.decideLocked(a)
		return false
	}
	p.failed = a
	if p.latest != a || p.launching {
		if delay, _ := pushback(a.trailer); delay < 0 {
			p.retry.stop()
		}
		return false
	}
	return p.sender.fits() && p.retry.decideRetry(a.trailer)
}

// late is called when attempt a has taken per_try_timeout, or received nothing for per_try_idle_timeout.
func (p *replay) late(a *attempt) {
	p.mu.Lock()
	var hedge *attempt
	if p.winner == nil && p.latest == a && !a.over && !p.launching && p.sender.fits() && p.retry.decideRetry(nil) {
		hedge = p.launch(nil)
	}
	p.mu.Unlock()
	if hedge != nil {
		p.sender.follow(hedge)
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
	p.request.retried(&p.retry, cause)
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
	p.sender.begin(a)
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
	f := p.failed
	a := &attempt{decision: &p.request.decision, over: true, trailer: f.trailer, sent: true, header: f.header, peer: f.peer}
	a.finished = make(chan struct{})
	a.end(err, f.trailer)
	return a
}

// decideLocked makes a the RPC, and ends the other attempts.
func (p *replay) decideLocked(a *attempt) {
	p.winner = a
	if p.decided != nil {
		close(p.decided)
		a.decision.Won()
		for b := p.latest; b != nil; b = b.earlier {
			if b != a {
				b.ended(b.timer.abandon())
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

// await returns the attempt that is the RPC.
func (p *replay) await() *attempt {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.winner == nil {
		p.changed.Wait()
	}
	return p.winner
}
