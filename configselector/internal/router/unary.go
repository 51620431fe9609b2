package router

import (
	"context"
	"io"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/grpcbridge"
)

// unaryStream presents a unary RPC as a stream, so that filters only deal with streams.
// RecvMsg makes the RPC. It is not safe for concurrent use.
type unaryStream struct {
	request
	last *exchange // nil: no request was sent yet
}

// exchange is the request of one attempt, and the parts of the response that gRPC reports.
type exchange struct {
	req             any
	sent            bool
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
	u.last = &exchange{req: m}
	return nil
}

func (u *unaryStream) RecvMsg(reply any) error {
	switch {
	case u.last == nil:
		u.last = new(exchange) // A filter that sends nothing sends nil.
	case u.last.sent:
		return io.EOF
	}
	u.mirrorUnary(u.last.req)
	var o outcome
	opts := append(o.split(u.rpc.Options), u.rpc.AddedOptions()...)
	retry := u.newRetrier()
	if !retry.resends(u.call) {
		return u.sendOnce(u.last.req, reply, u.last.reporting(opts))
	}
	return u.replayed(&attempt{exchange: u.last}, retry, reply, opts)
}

// reporting returns the options with which gRPC reports an attempt to x.
func (x *exchange) reporting(opts []grpc.CallOption) []grpc.CallOption {
	x.sent = true
	return append(slices.Clip(opts), grpc.Header(&x.header), grpc.Trailer(&x.trailer), grpc.Peer(&x.peer))
}

// sendOnce makes the RPC, which has a single attempt without limits of its own.
func (u *unaryStream) sendOnce(req, reply any, opts []grpc.CallOption) error {
	err := u.call.invoker(&u.decision, u.extra.WireMethod, req, reply, u.call.routes.Channel.ClientConn, opts...)
	if u.extra.Trace != nil {
		u.attemptEnded(1, err)
	}
	return err
}

// invoke makes the RPC if no filter looks at the response: gRPC reports to the application.
func (u *unaryStream) invoke(req, reply any, opts []grpc.CallOption) error {
	u.mirrorUnary(req)
	retry := u.newRetrier()
	switch {
	case retry.hedges():
		var o outcome
		u.last = &exchange{req: req}
		err := u.replayed(&attempt{exchange: u.last}, retry, reply, append(o.split(opts), u.rpc.AddedOptions()...))
		o.report(u)
		o.finished(err)
		return err
	case retry.resends(u.call):
		return u.invokeRetried(req, reply, opts, retry)
	}
	if added := u.rpc.AddedOptions(); len(added) > 0 {
		opts = slices.Concat(opts, added)
	}
	return u.sendOnce(req, reply, opts)
}

// retryRoom has room for the state of the first attempt of a unary RPC with a retry policy.
type retryRoom struct {
	exchange exchange
	options  [8]grpc.CallOption
}

// invokeRetried is invoke for an RPC that may be retried. gRPC reports the first attempt to
// the application and to the router, but its end to neither, so that an RPC that is not
// retried costs next to nothing more.
func (u *unaryStream) invokeRetried(req, reply any, opts []grpc.CallOption, retry retrier) error {
	try := u.call.optional.retryRoom
	u.last = &try.exchange
	u.last.req, u.last.sent = req, true
	options := try.options[:0]
	for _, o := range opts {
		if _, ok := o.(grpc.OnFinishCallOption); !ok {
			options = append(options, o)
		}
	}
	options = append(append(options, u.rpc.AddedOptions()...), grpc.Header(&u.last.header), grpc.Trailer(&u.last.trailer))
	d, timer := u.attempt(0, retry.hosts)
	ended := u.endReporter(1, timer)
	err := u.send(d, timer, ended, req, reply, options)
	if err == nil {
		grpcbridge.Finish(opts, nil)
		return nil
	}
	var o outcome
	first := &attempt{decision: d, timer: timer, ended: ended, err: err, exchange: u.last}
	err = u.replayed(first, retry, reply, append(o.split(opts), u.rpc.AddedOptions()...))
	if u.last != &try.exchange { // which gRPC has reported
		o.report(u)
	}
	o.finished(err)
	return err
}

// send makes an attempt.
func (u *unaryStream) send(d *decision.Decision, timer *tryTimer, ended func(error), message, reply any, opts []grpc.CallOption) error {
	err := timer.explain(u.call.invoker(d, u.extra.WireMethod, message, reply, u.call.routes.Channel.ClientConn, opts...))
	timer.end()
	ended(err)
	return err
}
