package configselector

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/grpcbridge"
)

// call is an RPC that goes through filters, or that the router has work with.
// It is the end of its chain of filters, and holds what the RPC needs when it
// is sent once, so that a unary RPC costs one allocation however many filters
// there are.
type call struct {
	s       *Selector
	to      target
	h       headers
	chain   *chain
	origin  context.Context // as the application gave it
	method  string          // as the application called it
	cc      *grpc.ClientConn
	invoker grpc.UnaryInvoker // unary RPCs
	rpc     httpfilter.RPC    // what the first filter is given

	first unaryStream // what the first RPC that is sent takes
	taken atomic.Bool // first is

	firstTry  *firstTry  // unary RPCs of routes with a retry policy
	streaming *streaming // streaming RPCs
	copying   *copying   // RPCs of routes with mirrors
}

// streaming is what is left to do for a streaming RPC when it ends.
type streaming struct {
	streamer grpc.Streamer
	outcome  outcome
	hold     hold
	cancel   context.CancelFunc
	ended    sync.Once
}

var _ httpfilter.End = (*call)(nil)

// newCall returns the call of an RPC. desc is nil for a unary one. How to reach gRPC
// is for the caller to add.
func (s *Selector) newCall(chain *chain, to *target, h *headers, origin context.Context, method string, desc *grpc.StreamDesc, opts []grpc.CallOption) *call {
	var c *call
	if desc == nil && to.route.Retry != nil {
		both := new(struct {
			call
			firstTry
		})
		c = &both.call
		c.firstTry = &both.firstTry
	} else {
		c = new(call)
	}
	c.s, c.to, c.h, c.chain, c.origin, c.method = s, *to, *h, chain, origin, method
	c.rpc = httpfilter.RPC{Method: method, Authority: h.authority, Cluster: to.cluster, StreamDesc: desc, Options: opts}
	if len(to.route.Mirrors) > 0 {
		c.copying = new(copying)
	}
	return c
}

// Origin implements decision.RPC.
func (c *call) Origin() (ctx context.Context, authority, contentType string) {
	return c.origin, c.h.authority, c.h.contentType
}

// Hash implements decision.RPC. Policies look at the RPC as the application
// made it.
func (c *call) Hash() (uint64, bool) {
	x := c.s.matchable(c.origin, c.method, &c.h)
	return c.to.route.Hash(&x, c.s.ch.id)
}

// start sends the RPC down the chain.
func (c *call) start(ctx context.Context) (grpc.ClientStream, error) {
	if c.chain.err != nil {
		return nil, c.chain.err
	}
	top, err := httpfilter.NewNext(c, c.chain.interceptors...).NewStream(ctx, &c.rpc)
	switch {
	case err != nil:
		return nil, statusOf(err)
	case top == nil:
		return nil, status.Error(codes.Internal, "an HTTP filter returned neither a stream nor an error")
	}
	return top, nil
}

// unary carries out a unary RPC. What the router answers to the first filter
// is a stream that nothing has happened on; if it arrives here as it is, no
// filter wants to see the response, and gRPC gets the RPC with the application's
// own options.
func (c *call) unary(ctx context.Context, req, reply any) error {
	opts := c.rpc.Options
	top, err := c.start(ctx)
	if err != nil {
		grpcbridge.Finish(opts, err)
		return err
	}
	defer c.copying.originalEnded()
	if top == grpc.ClientStream(&c.first) {
		return c.first.invoke(req, reply, opts)
	}
	err = statusOf(httpfilter.Exchange(top, req, reply))
	var o outcome
	o.split(opts)
	o.report(top)
	o.finished(err)
	return err
}

// stream starts a streaming RPC. timeout bounds it if it is above 0.
func (c *call) stream(ctx context.Context, timeout time.Duration) (grpc.ClientStream, error) {
	if timeout > 0 {
		ctx, c.streaming.cancel = context.WithTimeout(ctx, timeout)
	} else {
		ctx, c.streaming.cancel = context.WithCancel(ctx)
	}
	c.rpc.Options = c.streaming.outcome.split(c.rpc.Options)
	// A channel that closes ends RPCs that nobody reads from.
	c.rpc.AddOptions(grpc.OnFinish(func(err error) {
		if c.cc != nil && c.cc.GetState() == connectivity.Shutdown {
			c.end(err)
		}
	}))
	top, err := c.start(ctx)
	if err != nil {
		c.end(err)
		return nil, err
	}
	s := &appStream{ClientStream: top, call: c, desc: c.rpc.StreamDesc}
	s.stop = context.AfterFunc(ctx, func() { c.end(status.FromContextError(ctx.Err()).Err()) })
	return s, nil
}

// end is called whenever a streaming RPC may have ended.
func (c *call) end(err error) {
	c.streaming.ended.Do(func() {
		c.streaming.outcome.finished(err)
		c.copying.originalEnded()
		c.streaming.hold.release()
		c.streaming.cancel()
	})
}

// appStream is the stream that the application gets. It notices the end of the
// RPC, which no filter can be trusted to tell.
type appStream struct {
	grpc.ClientStream
	call *call
	desc *grpc.StreamDesc
	stop func() bool
}

func (s *appStream) SendMsg(m any) error {
	err := s.ClientStream.SendMsg(m)
	switch {
	case err == nil:
		return nil
	case err == io.EOF:
		if s.desc.ClientStreams {
			return err
		}
		return nil // As gRPC has it: RecvMsg tells.
	}
	err = statusOf(err)
	s.end(err)
	return err
}

func (s *appStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	switch {
	case err == nil && s.desc.ServerStreams:
		return nil
	case err == io.EOF && !s.desc.ServerStreams:
		err = status.Error(codes.Internal, "the RPC ended with status OK and no response message")
	case err != nil && err != io.EOF:
		err = statusOf(err)
	}
	s.call.streaming.outcome.report(s.ClientStream)
	s.end(err)
	return err
}

func (s *appStream) end(err error) {
	s.stop()
	if err == io.EOF {
		err = nil
	}
	s.call.end(err)
}

// statusOf makes a status error of what a filter returned.
func statusOf(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return status.FromContextError(err).Err()
	}
	return status.Error(codes.Unknown, err.Error())
}
