package router

import (
	"context"
	"io"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// A unary request is a stream of one message, so that filters only deal with streams. SendMsg keeps the message and
// RecvMsg makes the RPC. These methods are not safe for concurrent use.

func (r *request) Context() context.Context {
	if r.last == nil || r.last.peer.Addr == nil {
		return r.decision.Context
	}
	return peer.NewContext(r.decision.Context, &r.last.peer)
}

func (r *request) Header() (metadata.MD, error) {
	if r.last == nil {
		return nil, nil
	}
	return r.last.header, nil
}

func (r *request) Trailer() metadata.MD {
	if r.last == nil {
		return nil
	}
	return r.last.trailer
}

func (r *request) CloseSend() error { return nil }

func (r *request) SendMsg(m any) error {
	r.last = &attempt{message: m}
	return nil
}

func (r *request) RecvMsg(reply any) error {
	switch {
	case r.last == nil:
		r.last = new(attempt) // A filter that sends nothing sends nil.
	case r.last.sent:
		return io.EOF
	}
	r.mirrorUnary(r.last.message)
	retry := r.newRetrier()
	if !retry.resends(r.call) {
		opts := append(outcome(r.rpc.Options).others(nil), r.rpc.AddedOptions()...)
		return r.sendOnce(r.last.message, reply, r.last.reporting(opts))
	}
	return r.replayed(r.last.message, reply, retry, r.rpc.Options)
}

// invoke makes the RPC if no filter looks at the response. gRPC reports a single attempt to the application.
func (r *request) invoke(message, reply any, opts []grpc.CallOption) error {
	r.mirrorUnary(message)
	retry := r.newRetrier()
	if !retry.resends(r.call) {
		if added := r.rpc.AddedOptions(); len(added) > 0 {
			opts = slices.Concat(opts, added)
		}
		return r.sendOnce(message, reply, opts)
	}
	o := outcome(opts)
	err := r.replayed(message, reply, retry, opts)
	o.report(r, r.call.origin)
	o.finished(err)
	return err
}

// sendOnce makes the RPC, which has a single attempt without limits of its own.
func (r *request) sendOnce(message, reply any, opts []grpc.CallOption) error {
	err := r.call.invoker(&r.decision, r.extra.WireMethod, message, reply, r.call.routes.Channel.ClientConn, opts...)
	if r.extra.Trace != nil {
		r.attemptEnded(1, err)
	}
	return err
}

// reporting appends the options with which gRPC reports the response of a unary attempt to a.
func (a *attempt) reporting(opts []grpc.CallOption) []grpc.CallOption {
	a.sent = true
	return append(opts, grpc.Header(&a.header), grpc.Trailer(&a.trailer), grpc.Peer(&a.peer))
}
