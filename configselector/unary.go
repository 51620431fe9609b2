package configselector

import (
	"context"
	"io"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/dynxds/dynxds/internal/decision"
)

// unaryStream is a unary RPC in the dress of a stream, so that filters need to
// know of streams only: RecvMsg is where the RPC happens. It is not safe for
// concurrent use, as nothing in a unary RPC is.
type unaryStream struct {
	request
	req  any
	last *answer // nil: none yet
}

// answer is what gRPC reports of an attempt.
type answer struct {
	header, trailer metadata.MD
	peer            peer.Peer
}

func (u *unaryStream) Context() context.Context {
	if u.last == nil || u.last.peer.Addr == nil {
		return u.decision.Context
	}
	return peer.NewContext(u.decision.Context, &u.last.peer)
}

func (u *unaryStream) Header() (metadata.MD, error) {
	if u.last == nil {
		return nil, nil
	}
	return u.last.header, nil
}

func (u *unaryStream) Trailer() metadata.MD {
	if u.last == nil {
		return nil
	}
	return u.last.trailer
}

func (u *unaryStream) CloseSend() error { return nil }

func (u *unaryStream) SendMsg(m any) error {
	u.req = m
	return nil
}

func (u *unaryStream) RecvMsg(reply any) error {
	if u.last != nil {
		return io.EOF
	}
	u.copyUnary(u.req)
	var o outcome
	opts := append(o.split(u.options), u.added...)
	retry := u.newRetrier()
	for {
		err := u.send(reply, u.attempt(retry.made), opts)
		if err == nil || u.last.header != nil || !retry.again(&u.decision, err, u.last.trailer) || !u.fits(u.req) {
			return err
		}
		if err := retry.wait(&u.decision); err != nil {
			return err
		}
	}
}

func (u *unaryStream) send(reply any, d *decision.Decision, opts []grpc.CallOption) error {
	a := new(answer)
	u.last = a
	opts = append(slices.Clip(opts), grpc.Header(&a.header), grpc.Trailer(&a.trailer), grpc.Peer(&a.peer))
	return u.call.invoker(d, u.extra.WireMethod, u.req, reply, u.call.cc, opts...)
}

// invoke carries out the RPC for the application alone, who gets to see what
// gRPC reports.
func (u *unaryStream) invoke(req, reply any, opts []grpc.CallOption) error {
	u.copyUnary(req)
	if len(u.added) > 0 {
		opts = slices.Concat(opts, u.added)
	}
	return u.call.invoker(&u.decision, u.extra.WireMethod, req, reply, u.call.cc, opts...)
}
