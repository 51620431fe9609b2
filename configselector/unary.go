package configselector

import (
	"context"
	"io"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// unaryStream is a unary RPC in the dress of a stream, so that filters need to
// know of streams only: RecvMsg is where the RPC happens. It is not safe for
// concurrent use, as nothing in a unary RPC is.
type unaryStream struct {
	request
	req     any
	done    bool
	header  metadata.MD
	trailer metadata.MD
	peer    peer.Peer
}

func (u *unaryStream) Context() context.Context {
	if u.peer.Addr == nil {
		return u.decision.Context
	}
	return peer.NewContext(u.decision.Context, &u.peer)
}

func (u *unaryStream) Header() (metadata.MD, error) { return u.header, nil }
func (u *unaryStream) Trailer() metadata.MD         { return u.trailer }
func (u *unaryStream) CloseSend() error             { return nil }

func (u *unaryStream) SendMsg(m any) error {
	u.req = m
	return nil
}

func (u *unaryStream) RecvMsg(reply any) error {
	if u.done {
		return io.EOF
	}
	u.done = true
	u.copyUnary(u.req)
	var o outcome
	opts := append(o.split(u.call.opts), u.added...)
	opts = append(opts, grpc.Header(&u.header), grpc.Trailer(&u.trailer), grpc.Peer(&u.peer))
	retry := u.newRetrier()
	for n := 0; ; n++ {
		u.header, u.trailer = nil, nil
		d := u.attempt(n)
		err := u.call.invoker(d, u.method, u.req, reply, u.call.cc, opts...)
		if err == nil || u.header != nil || !retry.again(d, err, u.trailer) || !u.fits(u.req) {
			return err
		}
		if err := retry.wait(d); err != nil {
			return err
		}
	}
}

// invoke carries out the RPC for the application alone, who gets to see what
// gRPC reports.
func (u *unaryStream) invoke(req, reply any) error {
	u.copyUnary(req)
	opts := u.call.opts
	if len(u.added) > 0 {
		opts = slices.Concat(opts, u.added)
	}
	return u.call.invoker(&u.decision, u.method, req, reply, u.call.cc, opts...)
}
