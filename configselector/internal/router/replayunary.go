package router

import (
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/status"
)

// replayUnary is a unary RPC that is sent again, or may be sent to several endpoints at a time.
type replayUnary struct {
	replay
	first attempt
	reply any // of the application
	opts  []grpc.CallOption
	room  [8]grpc.CallOption // for opts, unless there are more
	codec encoding.CodecV2

	// The request is encoded for the second attempt, as hedges outlive the RPC.
	encode  sync.Once
	message encoded
	fit     bool // it can be encoded, and fits the buffer
}

// replayed makes the RPC by as many attempts as it needs, and returns how it ends. opts are those of the application.
func (r *request) replayed(message, reply any, retry retrier, opts []grpc.CallOption) error {
	p := &replayUnary{reply: reply, codec: codecOf(r.options())}
	p.first.message = message
	p.opts = append(outcome(opts).others(p.room[:0]), r.rpc.AddedOptions()...)
	if retry.hedges() {
		ofFilters := outcome(p.opts)
		p.opts = ofFilters.shared()
		defer ofFilters.report(r, r.call.origin)
	}
	p.init(r, retry, &p.first, p)
	p.follow(&p.first)
	winner := p.await()
	r.last = winner
	if winner.err != nil || winner.reply.data == nil {
		return winner.err
	}
	defer winner.reply.data.Free()
	if err := p.codec.Unmarshal(winner.reply.data, reply); err != nil {
		return status.Errorf(codes.Internal, "dynxds: the response message cannot be decoded: %v", err)
	}
	return nil
}

// begin implements sender: follow sends the attempt.
func (p *replayUnary) begin(*attempt) {}

// follow implements sender. It makes attempt a, and the attempts that follow, on this goroutine.
func (p *replayUnary) follow(a *attempt) {
	for launched := true; launched; {
		p.send(a)
		if a.err == nil || a.header != nil {
			p.answered(a)
			return
		}
		a, launched = p.after(a, a.trailer)
	}
}

// send makes an attempt. Attempts of a hedged RPC have replies of their own.
func (p *replayUnary) send(a *attempt) {
	r, reply, opts, message := p.request, p.reply, p.opts, p.first.message
	if a.number > 0 {
		message = p.message
		opts = slices.Clip(opts) // The first attempt uses the room behind them.
	}
	hedged := p.decided != nil
	if hedged {
		reply = &a.reply
	}
	if p.codec != nil && (a.number > 0 || hedged) {
		opts = append(opts, resending(opts, p.codec))
	}
	err := a.timer.explain(r.call.invoker(a.decision, r.extra.WireMethod, message, reply, r.call.routes.Channel.ClientConn, a.reporting(opts)...))
	a.timer.end()
	a.ended(err)
	a.err = err
}

// fits implements sender (gRFC A6, "Memory Management (Buffering)").
func (p *replayUnary) fits() bool {
	p.encode.Do(func() {
		var ok bool
		p.message, ok = encode(p.codec, p.first.message)
		p.fit = ok && len(p.message)+frameHeader <= bufferSize(p.request.options())
	})
	return p.fit
}
