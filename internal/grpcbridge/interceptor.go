package grpcbridge

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/outcomes"
	"github.com/dynxds/dynxds/internal/rpctrace"
)

// interceptors are the unary and the stream interceptor of one channel (Install) or of all channels dialled with the same options (DialOptions).
type interceptors struct {
	// explicit: they stand aside on a channel that Install gave its own, which are nearer to the wire.
	explicit bool
	// foreign is done once the one channel of Install, if dynxds does not serve it, has been looked at.
	foreign sync.Once
}

func (i *interceptors) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	runner, err := i.runner(ctx, cc, method, opts)
	switch {
	case err != nil:
		return err
	case runner == nil:
		return invoker(ctx, method, req, reply, cc, opts...)
	}
	return runner.Unary(ctx, method, req, reply, cc, invoker, opts)
}

func (i *interceptors) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	runner, err := i.runner(ctx, cc, method, opts)
	switch {
	case err != nil:
		return nil, err
	case runner == nil:
		return streamer(ctx, desc, cc, method, opts...)
	}
	return runner.Stream(ctx, desc, cc, method, streamer, opts)
}

// Finish calls the application's grpc.OnFinish options for an RPC that ends before gRPC
// has seen it.
func Finish(opts []grpc.CallOption, err error) {
	for _, o := range opts {
		if f, ok := o.(grpc.OnFinishCallOption); ok {
			f.OnFinish(err)
		}
	}
}

// runner returns what runs the RPC, having waited for it if need be, or nil if
// the RPC is to pass straight through. It takes no lock unless the RPC has to wait.
func (i *interceptors) runner(ctx context.Context, cc *grpc.ClientConn, method string, opts []grpc.CallOption) (Runner, error) {
	ch := lookup(cc)
	switch {
	case ch == nil && !bridged(cc):
		if !i.explicit {
			i.foreign.Do(func() { reportLost(cc) })
		}
		return nil, nil
	case i.explicit && (ch == nil && reached(cc) || ch != nil && ch.reached), decided(ctx, cc, method):
		return nil, nil
	case ch != nil:
		if s := ch.state.Load(); s.runner != nil {
			return s.runner, nil
		}
	}
	return await(ctx, cc, opts)
}

// decided reports whether an outer interceptor of ours has already decided
// this RPC, which happens when an application passes DialOptions twice. The
// method and the peer, which gRPC adds, guard against another RPC with the context of
// this one: of its stream, or as credentials or a stats handler were handed it.
func decided(ctx context.Context, cc *grpc.ClientConn, method string) bool {
	d := decision.FromContext(ctx)
	if d == nil || d.Channel != cc || d.WireMethod() != method {
		return false
	}
	now, _ := peer.FromContext(ctx)
	then, _ := peer.FromContext(d)
	return now == then
}

// await waits for the first configuration of the channel, which it wakes if
// it is idle. It ends the RPC if there will be none.
func await(ctx context.Context, cc *grpc.ClientConn, opts []grpc.CallOption) (r Runner, err error) {
	begin, failFast := time.Now(), failsFast(opts)
	for again := true; again; {
		ch, attached := join(cc)
		if !attached {
			cc.Connect()
		}
		r, again, err = ch.await(ctx, failFast)
		ch.leave()
	}
	if t := rpctrace.FromContext(ctx); t != nil {
		t.WaitedForConfig(rpctrace.ConfigWait{Target: cc.Target(), Duration: time.Since(begin), Err: err})
	}
	if err != nil {
		outcomes.Refused(cc.Target(), err)
		Finish(opts, err)
	}
	return r, err
}

// errClosing is what gRPC itself fails the RPCs of a closed channel with.
var errClosing = status.Error(codes.Canceled, "grpc: the client connection is closing")

// await waits until the Channel has a Runner or an error for an RPC. again means that the
// RPC has to look up the next Channel of its gRPC channel.
func (ch *Channel) await(ctx context.Context, failFast bool) (r Runner, again bool, err error) {
	if !ch.owned() {
		// Connect has built no resolver, so nothing would end this wait.
		switch ch.cc.GetState() {
		case connectivity.Shutdown:
			return nil, false, errClosing
		case connectivity.Idle:
			// The channel is about to close: it no longer leaves idleness, but
			// its state does not show that yet. Or it is idle again.
			if !ch.cc.WaitForStateChange(ctx, connectivity.Idle) {
				return nil, false, ch.gaveUp(ctx, nil)
			}
			return nil, true, nil
		}
	}
	var reason error
	for {
		s := ch.state.Load()
		switch {
		case s.runner != nil:
			return s.runner, false, nil
		case s.err != nil && failFast:
			return nil, false, status.Error(codes.Unavailable, s.err.Error())
		case s.err != nil:
			reason = s.err
		case s.detached && ch.cc.GetState() == connectivity.Shutdown:
			return nil, false, errClosing
		case s.detached:
			return nil, true, nil
		}
		select {
		case <-s.replaced:
		case <-ctx.Done():
			return nil, false, ch.gaveUp(ctx, reason)
		}
	}
}

// gaveUp is the error of an RPC whose context ended while it waited.
func (ch *Channel) gaveUp(ctx context.Context, reason error) error {
	code := status.FromContextError(ctx.Err()).Code()
	if reason != nil {
		return status.Errorf(code, "%v while waiting for the xDS configuration of %s; last error: %v", ctx.Err(), bounds.Quote(ch.cc.Target()), reason)
	}
	return status.Errorf(code, "%v while waiting for the xDS configuration of %s", ctx.Err(), bounds.Quote(ch.cc.Target()))
}

// failsFast reports whether an RPC with these options fails while there is no
// configuration, which is gRPC's default.
func failsFast(opts []grpc.CallOption) bool {
	failFast := true
	for _, o := range opts {
		if f, ok := o.(grpc.FailFastCallOption); ok {
			failFast = f.FailFast
		}
	}
	return failFast
}
