package router

import (
	"cmp"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/filterchain"
	"github.com/dynxds/dynxds/internal/outcomes"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// call is an RPC of the application that goes through filters, or that the router changes. It is the End of its
// filter chain. Each row is of one or several of the row below:
//
//	call      the RPC, as the application makes it
//	request   the RPC, as the last filter has passed it on; a filter may pass it on several times
//	attempt   a request, as gRPC gets it; there are several if the route has a retry policy
//
// Without a retry policy a unary RPC costs one allocation, however many filters it meets: the call, which has the
// first request. A streaming RPC has an appStream besides. If the route has a retry policy, a replay makes the attempts.
type call struct {
	routes    *Routes
	route     *xdsresource.Route
	weighted  *xdsresource.WeightedCluster // as drawn; nil if the route forwards nothing
	origin    context.Context              // as the application gave it
	invoker   grpc.UnaryInvoker            // unary RPCs
	streaming *appStream                   // streaming RPCs
	optional  *optional                    // nil: nothing
	counted   outcomes.RPC
	rpc       httpfilter.RPC // for the first filter

	first request // that the last filter makes of rpc
	taken bool    // first is in use
}

// optional has the fields that only few calls need.
type optional struct {
	headers Headers // if they are special
	cluster string  // that was drawn, if a header of the RPC names the cluster
	// over ends when the RPC has ended, by end. Both are nil unless the route has mirrors.
	over context.Context
	end  context.CancelFunc
}

// newCall returns the call of an RPC, without its invoker or streamer. desc is nil for a
// unary RPC.
func (r *Routes) newCall(rpc *RPC, desc *grpc.StreamDesc) *call {
	c := new(call)
	byHeader := rpc.Weighted != nil && rpc.Weighted.Header != ""
	if rpc.Headers.special || byHeader || len(rpc.Route.Mirrors) > 0 {
		c.optional = new(optional)
	}
	c.routes, c.route, c.weighted, c.origin, c.counted = r, rpc.Route, rpc.Weighted, rpc.Origin, rpc.Counted
	own := &c.rpc
	own.Method, own.Authority, own.Cluster, own.StreamDesc, own.Options = rpc.Method, rpc.Headers.authority, rpc.Cluster, desc, rpc.Options
	d := &c.first.decision
	d.Channel, d.Version, d.Method = r.Channel.ClientConn, r.Version, rpc.Method
	c.first.extra.Trace = rpc.Trace
	if c.optional != nil {
		c.optional.headers, c.optional.cluster = rpc.Headers, rpc.Cluster
		if len(rpc.Route.Mirrors) > 0 {
			c.optional.over, c.optional.end = context.WithCancel(context.Background())
		}
	}
	return c
}

// method returns the method that the application called.
func (c *call) method() string { return c.first.decision.Method }

func (c *call) headers() Headers {
	if c.optional != nil {
		return c.optional.headers
	}
	return Headers{authority: c.routes.Channel.Authority}
}

// cluster returns the cluster that was drawn.
func (c *call) cluster() string {
	if c.weighted.Header != "" {
		return c.optional.cluster
	}
	return c.weighted.Name
}

// endMirrors has the mirrors of the RPC, which has ended, end soon.
func (c *call) endMirrors() {
	if c.optional != nil && c.optional.end != nil {
		c.optional.end()
	}
}

// unaryDesc describes a unary RPC, which has no StreamDesc, as a stream.
var unaryDesc = new(grpc.StreamDesc)

func (c *call) desc() *grpc.StreamDesc { return cmp.Or(c.rpc.StreamDesc, unaryDesc) }

// open hands a request, an attempt or a mirror of the RPC to gRPC.
func (c *call) open(d *decision.Decision, opts []grpc.CallOption) (grpc.ClientStream, error) {
	if c.rpc.StreamDesc == nil {
		return &unary{call: c, decision: d, opts: opts}, nil
	}
	return c.streaming.streamer(d, c.rpc.StreamDesc, c.routes.Channel.ClientConn, d.WireMethod(), opts...)
}

// destination returns the route's entry for the cluster that the RPC goes to, or the one
// that was drawn if a filter sends the RPC to a cluster that is not of the route.
func (c *call) destination(cluster string) *xdsresource.WeightedCluster {
	if cluster != c.cluster() {
		if other := c.entry(cluster); other != nil {
			return other
		}
	}
	return c.weighted
}

func (c *call) entry(cluster string) *xdsresource.WeightedCluster {
	clusters := ClustersOf(c.route)
	for i := range clusters {
		if clusters[i].Name == cluster {
			return &clusters[i]
		}
	}
	return nil
}

// RouteHas is for httpfilter.Next.RouteHas.
func (c *call) RouteHas(cluster string) bool { return cluster != "" && c.entry(cluster) != nil }

// Origin implements decision.RPC.
func (c *call) Origin() (ctx context.Context, authority, contentType string) {
	h := c.headers()
	return c.origin, h.authority, h.contentType
}

// Hash implements decision.RPC. Hash policies see the RPC as the application made it.
func (c *call) Hash() (uint64, bool) {
	h := c.headers()
	x := c.routes.Matchable(c.origin, c.method(), &h)
	return c.route.Hash(&x, c.routes.Channel.id)
}

// start sends the RPC down the chain.
func (c *call) start(ctx context.Context, chain *filterchain.Chain) (grpc.ClientStream, error) {
	if chain.Err != nil {
		return nil, chain.Err
	}
	top, err := httpfilter.NewNext(c, chain.Interceptors(c.trace())...).NewStream(ctx, &c.rpc)
	switch {
	case err != nil:
		return nil, statusOf(err)
	case top == nil:
		return nil, status.Error(codes.Internal, "an HTTP filter returned neither a stream nor an error")
	}
	return top, nil
}

// unary carries out a unary RPC. The router gives the last filter a stream on which nothing
// has happened. If that arrives here unwrapped, no filter reads the response, and
// gRPC gets the RPC with the application's own options.
func (c *call) unary(ctx context.Context, chain *filterchain.Chain, req, reply any) error {
	opts := callOptions(c.rpc.Options)
	top, err := c.start(ctx, chain)
	if err != nil {
		opts.finished(err)
		return err
	}
	defer c.endMirrors()
	if top == grpc.ClientStream(&c.first) {
		return c.first.invoke(req, reply)
	}
	err = statusOf(httpfilter.Exchange(top, req, reply))
	opts.report(top, c.origin)
	opts.finished(err)
	return err
}

// stream starts a streaming RPC. timeout bounds it if it is above 0.
func (c *call) stream(ctx context.Context, timeout time.Duration) (stream grpc.ClientStream, err error) {
	if timeout > 0 {
		ctx, c.streaming.cancel = context.WithTimeout(ctx, timeout)
	} else {
		ctx, c.streaming.cancel = context.WithCancel(ctx)
	}
	c.streaming.opts = c.rpc.Options
	c.rpc.Options = c.streaming.opts.withoutReports(nil)
	// The end of the channel ends RPCs whose application has stopped reading.
	c.rpc.AddOptions(grpc.OnFinish(func(err error) {
		if cc := c.routes.Channel.ClientConn; cc != nil && cc.GetState() == connectivity.Shutdown {
			c.end(err)
		}
	}))
	err = outcomes.ErrPanic // unless the chain returns
	defer func() {
		if err != nil {
			c.end(err)
		}
	}()
	top, err := c.start(ctx, c.streaming.chain)
	if err != nil {
		return nil, err
	}
	s := c.streaming
	s.ClientStream = top
	s.stop = context.AfterFunc(ctx, func() { c.end(status.FromContextError(ctx.Err()).Err()) })
	return s, nil
}

// end is called when a streaming RPC has ended, maybe more than once.
func (c *call) end(err error) {
	c.streaming.ended.Do(func() {
		ended(c.counted, c.trace(), err) // before the application hears of the end
		c.streaming.opts.finished(err)
		c.endMirrors()
		c.streaming.cancel()
	})
}

// appStream is the stream that the application gets. It detects the end of the RPC without
// relying on the filters.
type appStream struct {
	grpc.ClientStream // of the first filter; nil: the filters have not returned it yet
	call              *call
	streamer          grpc.Streamer
	chain             *filterchain.Chain
	opts              callOptions // of the application
	cancel            context.CancelFunc
	stop              func() bool // ends the wait for the end of the context
	ended             sync.Once
}

func (s *appStream) SendMsg(m any) error {
	err := s.ClientStream.SendMsg(m)
	switch {
	case err == nil:
		return nil
	case err == io.EOF:
		if s.call.rpc.StreamDesc.ClientStreams {
			return err
		}
		return nil // As in gRPC, RecvMsg returns the status.
	}
	err = statusOf(err)
	s.end(err)
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
	s.opts.report(s.ClientStream, s.call.origin)
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

// statusOf makes the error of a filter a status error.
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
