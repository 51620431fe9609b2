package router

import (
	"context"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/grpcbridge"
)

// unary is a unary RPC, as gRPC gets it, as a stream of one message, so that filters, retries and mirrors only deal with
// streams. SendMsg keeps the message, and RecvMsg makes the RPC. It is not safe for concurrent use, unless it is hedged.
type unary struct {
	call     *call
	decision *decision.Decision
	opts     []grpc.CallOption
	attempt  *attempt // nil: the RPC has no other
	// hedged: the RPC is made by the first of Header and RecvMsg, and its reply decoded by RecvMsg.
	hedged bool
	sent   atomic.Bool // gRPC has got the RPC

	message any
	made    sync.WaitGroup // until it has ended, if it is hedged
	header  metadata.MD
	trailer metadata.MD
	peer    peer.Peer
	reply   mem.BufferSlice // if the RPC is hedged
}

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
		return u.attempt.err
	}
	opts := append(u.opts, grpc.Header(&u.header), grpc.Trailer(&u.trailer), grpc.Peer(&u.peer))
	err := u.call.invoker(u.decision, u.decision.WireMethod(), u.message, reply, u.call.routes.Channel.ClientConn, opts...)
	if u.attempt == nil {
		attemptEnded(u.decision, 1, err)
		return err
	}
	u.attempt.finish(err)
	if u.hedged {
		u.made.Done()
	}
	return u.attempt.err
}

// A unary request is a stream too: the application's own RPC as long as no filter looks at the response (see call.unary), and
// otherwise the one that begun returns.

func (r *request) begun() *unary {
	if r.unary == nil {
		opts := slices.Concat(callOptions(r.rpc.Options).withoutReports(nil), r.rpc.AddedOptions())
		r.unary = &unary{call: r.call, decision: &r.decision, opts: opts}
	}
	return r.unary
}

func (r *request) Context() context.Context     { return r.begun().Context() }
func (r *request) Header() (metadata.MD, error) { return r.begun().Header() }
func (r *request) Trailer() metadata.MD         { return r.begun().Trailer() }
func (r *request) CloseSend() error             { return nil }
func (r *request) SendMsg(m any) error          { return r.begun().SendMsg(m) }
func (r *request) RecvMsg(m any) error          { return r.begun().RecvMsg(m) }

// invoke makes the RPC, as gRPC reports it to the application.
func (r *request) invoke(message, reply any) error {
	err := r.call.invoker(&r.decision, r.extra.WireMethod, message, reply, r.call.routes.Channel.ClientConn, r.options()...)
	attemptEnded(&r.decision, 1, err)
	return err
}
