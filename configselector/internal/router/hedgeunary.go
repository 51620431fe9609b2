package router

import (
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// unaryTry is what an attempt of a hedged unary RPC has got. It is decoded when the RPC has
// ended, as late attempts still write to theirs.
type unaryTry struct {
	exchange exchange
	reply    received
}

// hedgeable returns the encoded request if the RPC may be sent several times. One that does not
// fit the buffer is sent once (gRFC A6, "Memory Management (Buffering)").
func (u *unaryStream) hedgeable(retry *retrier, req any) (message encoded, ok bool) {
	if !retry.hedges() {
		return nil, false
	}
	if message, ok = encode(codecOf(u.options()), req); !ok || len(message)+frameHeader > bufferSize(u.options()) {
		retry.max = 1
		return nil, false
	}
	return message, true
}

// hedge makes the RPC, with hedges.
func (u *unaryStream) hedge(message encoded, reply any, retry retrier, opts []grpc.CallOption) error {
	codec := codecOf(u.options())
	var ofFilters outcome
	opts = ofFilters.splitShared(opts)
	defer ofFilters.report(u)
	opts = append(slices.Clip(opts), resending(opts, codec))
	h := newHedging(&u.request, retry)
	h.begin = func(t *try) {
		x := &t.unary.exchange
		x.req, x.sent = u.last.req, true
		opts := append(h.prepare(t, opts), grpc.Header(&x.header), grpc.Trailer(&x.trailer), grpc.Peer(&x.peer))
		go func() {
			err := u.call.invoker(t.decision, u.extra.WireMethod, message, &t.unary.reply, u.call.routes.Channel.ClientConn, opts...)
			err = t.timer.explain(err)
			t.timer.end()
			t.ended(err)
			h.post(t, x.header != nil, err, x.trailer)
		}()
	}
	winner, err := h.run(nil)
	h.settle(winner)
	if winner == nil {
		u.last = &exchange{req: u.last.req, sent: true}
		return err
	}
	u.last = &winner.unary.exchange
	if err == nil {
		err = winner.status
	}
	if err != nil {
		return err
	}
	defer winner.unary.reply.data.Free()
	if err := codec.Unmarshal(winner.unary.reply.data, reply); err != nil {
		return status.Errorf(codes.Internal, "dynxds: the response message cannot be decoded: %v", err)
	}
	return nil
}
