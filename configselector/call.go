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
	s        *Selector
	to       target
	h        headers
	chain    *chain
	origin   context.Context   // as the application gave it
	method   string            // as the application called it
	opts     []grpc.CallOption // as the application gave them
	cc       *grpc.ClientConn
	invoker  grpc.UnaryInvoker // unary RPCs
	streamer grpc.Streamer     // streaming RPCs
	rpc      httpfilter.RPC    // what the first filter is given

	first unaryStream
	taken atomic.Bool // first is

	// What follows is for streaming RPCs.

	outcome outcome
	hold    hold
	cancel  context.CancelFunc
	ended   sync.Once

	// copies are the copies that end some time after the RPC.
	mu     sync.Mutex
	copies []*copied
	over   bool // the RPC has ended
}

var _ httpfilter.End = (*call)(nil)

func (s *Selector) newCall(chain *chain, to *target, h *headers, origin context.Context, method string, opts []grpc.CallOption) *call {
	return &call{
		s: s, to: *to, h: *h, chain: chain, origin: origin, method: method, opts: opts,
		rpc: httpfilter.RPC{Method: method, Authority: h.authority, Cluster: to.cluster, Options: opts},
	}
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
	top, err := c.start(ctx)
	if err != nil {
		grpcbridge.Finish(c.opts, err)
		return err
	}
	defer c.endCopies()
	if top == grpc.ClientStream(&c.first) && c.to.route.Retry == nil {
		return c.first.invoke(req, reply)
	}
	err = statusOf(httpfilter.Exchange(top, req, reply))
	var o outcome
	o.split(c.opts)
	o.report(top)
	o.finished(err)
	return err
}

// stream starts a streaming RPC. timeout bounds it if it is above 0.
func (c *call) stream(ctx context.Context, timeout time.Duration) (grpc.ClientStream, error) {
	if timeout > 0 {
		ctx, c.cancel = context.WithTimeout(ctx, timeout)
	} else {
		ctx, c.cancel = context.WithCancel(ctx)
	}
	c.rpc.Options = c.outcome.split(c.opts)
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
	s := &appStream{ClientStream: top, call: c}
	s.stop = context.AfterFunc(ctx, func() { c.end(status.FromContextError(ctx.Err()).Err()) })
	return s, nil
}

// end is called whenever a streaming RPC may have ended.
func (c *call) end(err error) {
	c.ended.Do(func() {
		c.outcome.finished(err)
		c.endCopies()
		c.hold.release()
		c.cancel()
	})
}

// appStream is the stream that the application gets. It notices the end of the
// RPC, which no filter can be trusted to tell.
type appStream struct {
	grpc.ClientStream
	call *call
	stop func() bool
}

func (s *appStream) SendMsg(m any) error {
	err := s.ClientStream.SendMsg(m)
	if err != nil && err != io.EOF {
		err = statusOf(err)
		s.end(err)
	}
	return err
}

func (s *appStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	switch {
	case err == nil && s.call.rpc.StreamDesc.ServerStreams:
		return nil
	case err == io.EOF && !s.call.rpc.StreamDesc.ServerStreams:
		err = status.Error(codes.Internal, "the RPC ended with status OK and no response message")
	case err != nil && err != io.EOF:
		err = statusOf(err)
	}
	s.call.outcome.report(s.ClientStream)
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
