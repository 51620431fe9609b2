package router

import (
	"context"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/grpcbridge"
)

// unary is an attempt of a unary RPC as a stream of one message, so that filters, retries and mirrors only deal with
// streams. SendMsg keeps the message, and RecvMsg makes the RPC. It is not safe for concurrent use, unless it is hedged: then
// the first of Header and RecvMsg makes the RPC, and RecvMsg decodes the reply.
type unary attempt

func (u *unary) Context() context.Context {
	if u.peer.Addr == nil {
		return u.decision.Context
	}
	return peer.NewContext(u.decision.Context, &u.peer)
}

func (u *unary) Header() (metadata.MD, error) {
	if u.hedged {
		_ = u.send(&u.reply)
	}
	return u.header, nil
}

func (u *unary) Trailer() metadata.MD { return u.trailer }

func (u *unary) CloseSend() error { return nil }

func (u *unary) SendMsg(m any) error {
	if u.sent.Load() {
		return io.EOF
	}
	u.message = m
	return nil
}

func (u *unary) RecvMsg(reply any) error {
	if !u.hedged {
		if u.sent.Load() {
			return io.EOF
		}
		return u.send(reply)
	}
	if err := u.send(&u.reply); err != nil || u.reply == nil {
		return err
	}
	defer u.reply.Free()
	if err := grpcbridge.CodecOf(u.opts).Unmarshal(u.reply, reply); err != nil {
		return status.Errorf(codes.Internal, "dynxds: the response message cannot be decoded: %v", err)
	}
	return nil
}

// send makes the RPC, unless it is made already, and returns its error when it has ended.
func (u *unary) send(reply any) error {
	if u.sent.Swap(true) {
		u.made.Wait()
		return u.err
	}
	opts := append(u.opts, grpc.Header(&u.header), grpc.Trailer(&u.trailer), grpc.Peer(&u.peer))
	(*attempt)(u).finish(u.request.call.invoke(u.decision, u.message, reply, opts))
	if u.hedged {
		u.made.Done()
	}
	return u.err
}

// A unary request is a stream too: the application's own RPC as long as no filter looks at the response (see Routes.Unary), and
// otherwise the attempt that begun returns.

func (r *request) begun() grpc.ClientStream {
	if r.attempt == nil {
		r.attempt = new(attempt)
		r.attempt.of(r, &r.decision)
		r.attempt.open(r.unreported(nil))
	}
	return r.attempt.ClientStream
}

func (r *request) Context() context.Context     { return r.begun().Context() }
func (r *request) Header() (metadata.MD, error) { return r.begun().Header() }
func (r *request) Trailer() metadata.MD         { return r.begun().Trailer() }
func (r *request) CloseSend() error             { return nil }
func (r *request) SendMsg(m any) error          { return r.begun().SendMsg(m) }
func (r *request) RecvMsg(m any) error          { return r.begun().RecvMsg(m) }
