package router

import (
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/status"
)

// replayUnary is a unary RPC that is sent again, or may be sent to several endpoints at a time.
type replayUnary struct {
	replay
	unary *unaryStream
	req   any
	reply any // of the application
	opts  []grpc.CallOption
	codec encoding.CodecV2

	// replay.mu guards these. The request is encoded for the second attempt, as hedges outlive the RPC.
	message encoded
	encode  sync.Once
	fit     bool // it can be encoded, and fits the buffer
}

// replayed makes the RPC by first, which may have failed already, and by further attempts, and returns how it
// ends.
func (u *unaryStream) replayed(first *attempt, retry retrier, reply any, opts []grpc.CallOption) error {
	p := &replayUnary{unary: u, req: first.exchange.req, reply: reply, codec: codecOf(u.options())}
	p.replay.fits = p.fits
	p.replay.follow = p.run
	var ofFilters outcome
	if retry.hedges() {
		opts = ofFilters.splitShared(opts)
		defer ofFilters.report(u)
	}
	p.opts = opts
	if p.codec != nil {
		p.opts = append(p.opts, resending(opts, p.codec))
	}
	p.init(&u.request, retry, first)
	p.run(first)
	winner := p.await()
	u.last = winner.exchange
	if winner.err != nil || winner.reply.data == nil {
		return winner.err
	}
	defer winner.reply.data.Free()
	if err := p.codec.Unmarshal(winner.reply.data, reply); err != nil {
		return status.Errorf(codes.Internal, "dynxds: the response message cannot be decoded: %v", err)
	}
	return nil
}

// run makes attempt a, unless it has failed, and the attempts that follow, on this goroutine.
func (p *replayUnary) run(a *attempt) {
	for launched := true; launched; {
		if a.err == nil {
			p.send(a)
		}
		if a.err == nil || a.exchange.header != nil {
			p.answered(a)
			return
		}
		a, launched = p.after(a, a.exchange.trailer)
	}
}

// send makes an attempt. Attempts of a hedged RPC have replies of their own.
func (p *replayUnary) send(a *attempt) {
	message := p.req
	if a.number > 0 {
		p.mu.Lock()
		message = p.message
		p.mu.Unlock()
		a.exchange = &exchange{req: p.req}
	}
	reply := p.reply
	if p.decided != nil {
		reply = &a.reply
	}
	a.err = p.unary.send(a.decision, a.timer, a.ended, message, reply, a.exchange.reporting(p.opts))
}

// fits reports whether the request can be encoded, and fits the buffer (gRFC A6, "Memory Management
// (Buffering)").
func (p *replayUnary) fits() bool {
	p.encode.Do(func() {
		var ok bool
		p.message, ok = encode(p.codec, p.req)
		p.fit = ok && len(p.message)+frameHeader <= bufferSize(p.unary.options())
	})
	return p.fit
}
