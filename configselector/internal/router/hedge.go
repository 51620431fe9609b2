package router

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// hedging decides when one RPC is sent again while attempts of it are under way (Envoy's
// hedge_on_per_try_timeout), and which attempt is the RPC. It runs on one
// goroutine, and handles neither messages nor streams.
type hedging struct {
	request *request
	retry   retrier
	// begin begins an attempt without waiting for it. Its end, or its response headers, are posted.
	begin  func(*try)
	events chan hedgeEvent // with room for all, so that posting does not block

	tries   []*try
	running int         // of tries
	failed  *try        // the last one that has failed, or nil
	idle    time.Time   // since when none is running
	timer   *time.Timer // to the next attempt, if one is due
	due     bool
	stopped bool // no further attempts
}

// try is one attempt of a hedged RPC.
type try struct {
	attempt // without a stream if the RPC is unary
	number  int

	// The outcome is written before it is posted.
	answered bool // there are response headers
	status   error
	trailer  metadata.MD

	unary  unaryTry
	stream streamTry
}

type hedgeEvent struct {
	try   *try
	ended bool // or answered; otherwise a timeout of the policy has passed
}

func newHedging(r *request, retry retrier) hedging {
	return hedging{request: r, retry: retry, events: make(chan hedgeEvent, 3*retry.max)}
}

// run sends attempts until one of them is the RPC, which it returns, or committed is closed. If err
// is not nil, the RPC ends with it, and with the trailer of the attempt, which may be nil.
func (h *hedging) run(committed <-chan struct{}) (winner *try, err error) {
	h.timer = time.NewTimer(0)
	h.timer.Stop()
	defer h.timer.Stop()
	h.launch()
	over := h.request.decision.Done()
	for {
		select {
		case <-committed:
			return nil, nil
		case <-h.timer.C:
			h.launch()
		case <-over:
			over = nil
			h.stop()
		case e := <-h.events:
			if !e.ended {
				h.late(e.try)
				continue
			}
			if h.running--; h.running == 0 {
				h.idle = time.Now()
			}
			switch refused := e.try.number > 0 && e.try.decision.Dropped(); {
			case refused:
				h.stop()
				h.retry.sent--
				if h.running == 0 {
					return h.failed, notRetried(h.failed.status, e.try.status)
				}
			case !h.tolerates(e.try):
				return e.try, nil
			default:
				h.fail(e.try)
			}
		}
		if h.running > 0 || h.due {
			continue
		}
		if err := h.request.decision.Err(); err != nil {
			return h.failed, status.FromContextError(err).Err()
		}
		return h.failed, nil
	}
}

// launch sends the next attempt.
func (h *hedging) launch() {
	h.due = false
	t := &try{number: len(h.tries)}
	if t.number > 0 {
		h.retry.made, h.retry.delay = t.number, 0
		var why error
		if h.running == 0 {
			h.retry.waited += time.Since(h.idle)
			why = h.failed.status
		}
		h.request.retried(&h.retry, why)
		h.retry.sent++
	}
	h.tries = append(h.tries, t)
	h.running++
	h.begin(t)
}

// schedule sends the next attempt, if there is one, after a delay.
func (h *hedging) schedule(delay time.Duration) {
	if h.due = !h.stopped && len(h.tries) < h.retry.max; h.due {
		h.timer.Reset(delay)
	}
}

// stop prevents further attempts.
func (h *hedging) stop() {
	h.due, h.stopped = false, true
	h.timer.Stop()
}

// latest reports whether no attempt was sent after t, and none is due.
func (h *hedging) latest(t *try) bool { return !h.due && t.number == len(h.tries)-1 }

// late is called when an attempt has taken per_try_timeout, or received nothing for
// per_try_idle_timeout.
func (h *hedging) late(t *try) {
	if h.latest(t) {
		h.retry.after(nil)
		h.schedule(h.retry.delay)
	}
}

// tolerates reports whether the RPC goes on although t has ended.
func (h *hedging) tolerates(t *try) bool {
	return t.status != nil && !t.answered && h.request.decision.Err() == nil && !t.decision.Dropped() &&
		h.retry.retriable(t.decision, t.status, t.trailer)
}

// fail is called when t has ended with a status that leaves hope.
func (h *hedging) fail(t *try) {
	h.failed = t
	if wait, asked := pushback(t.trailer); asked && wait < 0 {
		h.stop()
	} else if h.latest(t) {
		h.retry.after(t.trailer)
		h.schedule(h.retry.delay)
	}
}

// settle ends the attempts that are not the RPC, which winner is, or is nil.
func (h *hedging) settle(winner *try) {
	if winner != nil {
		winner.decision.Won()
	}
	for _, t := range h.tries {
		if t != winner {
			t.ended(t.timer.abandon())
		}
	}
	h.request.call.recordRetries(&h.retry)
}

// post posts the outcome of an attempt.
func (h *hedging) post(t *try, answered bool, err error, trailer metadata.MD) {
	t.answered, t.status, t.trailer = answered, err, trailer
	h.events <- hedgeEvent{t, true}
}

// prepare prepares an attempt, and returns its options.
func (h *hedging) prepare(t *try, opts []grpc.CallOption) []grpc.CallOption {
	opts = t.attempt.prepare(h.request, t.number, h.retry.hosts, opts)
	t.decision.Attempt().Hedged = true
	t.timer.late = func() { h.events <- hedgeEvent{t, false} }
	return opts
}
