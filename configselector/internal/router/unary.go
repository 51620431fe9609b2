package router

import (
	"context"
	"io"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/rpctrace"
)

// unaryStream presents a unary RPC as a stream, so that filters only deal with streams.
// RecvMsg makes the RPC. It is not safe for concurrent use.
type unaryStream struct {
	request
	last *exchange // nil: no request was sent yet
}

// exchange is the request of one attempt and what gRPC reports of it.
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
	if message, ok := u.hedgeable(&retry, u.last.req); ok {
		return u.hedge(message, reply, retry, opts)
	}
	err := u.send(reply, &retry, opts)
	return u.again(reply, opts, &retry, err)
}

// again retries the RPC after an attempt that ended with err, as often as the policy
// permits, and returns the error of the last attempt.
func (u *unaryStream) again(reply any, opts []grpc.CallOption, retry *retrier, err error) error {
	defer u.call.recordRetries(retry)
	for err != nil && u.last.header == nil && retry.again(&u.decision, err, u.last.trailer) && u.fits(u.last.req) {
		u.retried(retry, err)
		if err := retry.wait(&u.decision); err != nil {
			return err
		}
		last, failure := u.last, err
		if err = u.send(reply, retry, opts); u.decision.Failure() == rpctrace.MaxRetries {
			u.last = last
			retry.sent--
			return notRetried(failure, err)
		}
	}
	return err
}

// send makes an attempt, and keeps what gRPC reports of it.
func (u *unaryStream) send(reply any, retry *retrier, opts []grpc.CallOption) error {
	if u.last.sent {
		u.last = &exchange{req: u.last.req}
	}
	a := u.last
	a.sent = true
	opts = append(slices.Clip(opts), grpc.Header(&a.header), grpc.Trailer(&a.trailer), grpc.Peer(&a.peer))
	return u.try(retry, a.req, reply, opts)
}

// try makes an attempt.
func (u *unaryStream) try(retry *retrier, req, reply any, opts []grpc.CallOption) error {
	d, timer := u.attempt(retry.made, retry.hosts)
	err := u.call.invoker(d, u.extra.WireMethod, req, reply, u.call.routes.Channel.ClientConn, opts...)
	if timer != nil {
		timer.end()
		err = timer.explain(err)
	}
	if u.extra.Trace != nil {
		u.attemptEnded(retry.made+1, err)
	}
	return err
}

// invoke makes the RPC if no filter looks at the response: gRPC reports to the application.
func (u *unaryStream) invoke(req, reply any, opts []grpc.CallOption) error {
	u.mirrorUnary(req)
	retry := u.newRetrier()
	if message, ok := u.hedgeable(&retry, req); ok {
		var o outcome
		u.last = &exchange{req: req}
		err := u.hedge(message, reply, retry, append(o.split(opts), u.rpc.AddedOptions()...))
		o.report(u)
		o.finished(err)
		return err
	}
	if retry.max > 1 || u.call.limitsTries() {
		return u.invokeRetried(req, reply, opts, &retry)
	}
	if added := u.rpc.AddedOptions(); len(added) > 0 {
		opts = slices.Concat(opts, added)
	}
	return u.try(&retry, req, reply, opts)
}

// firstTry is what the first attempt of a unary RPC with a retry policy needs.
type firstTry struct {
	exchange exchange
	options  [8]grpc.CallOption
}

// invokeRetried is invoke for an RPC that may be retried. gRPC reports the first attempt to
// the application and to the router, but its end to neither, so that an RPC that is not
// retried costs next to nothing more.
func (u *unaryStream) invokeRetried(req, reply any, opts []grpc.CallOption, retry *retrier) error {
	try := u.call.more.firstTry
	u.last = &try.exchange
	u.last.req, u.last.sent = req, true
	first := try.options[:0]
	for _, o := range opts {
		if _, ok := o.(grpc.OnFinishCallOption); !ok {
			first = append(first, o)
		}
	}
	first = append(append(first, u.rpc.AddedOptions()...), grpc.Header(&try.exchange.header), grpc.Trailer(&try.exchange.trailer))
	err := u.try(retry, req, reply, first)
	if err == nil {
		grpcbridge.Finish(opts, nil)
		return nil
	}
	var o outcome
	err = u.again(reply, append(o.split(opts), u.rpc.AddedOptions()...), retry, err)
	if u.last != &try.exchange { // which gRPC has reported
		o.report(u)
	}
	o.finished(err)
	return err
}
