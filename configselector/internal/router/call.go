package router

import (
	"cmp"
	"context"
	"io"
	"runtime"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/grpcbridge"
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
	app       RPC // as the application makes it
	routes    *Routes
	invoker   grpc.UnaryInvoker // unary RPCs
	streaming *appStream        // streaming RPCs
	rpc       httpfilter.RPC    // for the first filter
	over      context.Context   // when the RPC has ended, by end; nil unless the route has mirrors
	end       context.CancelFunc

	first request // that the last filter makes of rpc
}

// newCall returns the call of an RPC, without its invoker or streamer. desc is nil for a
// unary RPC.
func (r *Routes) newCall(rpc *RPC, desc *grpc.StreamDesc, opts []grpc.CallOption) *call {
	c := new(call)
	c.app, c.routes = *rpc, r
	own := &c.rpc
	own.Method, own.Authority, own.Cluster, own.StreamDesc, own.Options = rpc.Method, rpc.Authority, rpc.Cluster, desc, opts
	if len(rpc.Route.Mirrors) > 0 {
		c.over, c.end = context.WithCancel(context.Background())
	}
	return c
}

// endMirrors has the mirrors of the RPC, which has ended, end soon.
func (c *call) endMirrors() {
	if c.end != nil {
		c.end()
	}
}

func (c *call) unary() bool { return c.rpc.StreamDesc == nil }

// open opens a stream of gRPC for the RPC.
func (c *call) open(d *decision.Decision, opts []grpc.CallOption) (grpc.ClientStream, error) {
	return c.streaming.streamer(d, c.rpc.StreamDesc, c.routes.Channel.ClientConn, d.WireMethod(), opts...)
}

// invoke has gRPC make a unary RPC.
func (c *call) invoke(d *decision.Decision, message, reply any, opts []grpc.CallOption) error {
	return c.invoker(d, d.WireMethod(), message, reply, c.routes.Channel.ClientConn, opts...)
}

// destination returns the route's entry for the cluster that the RPC goes to, or the one
// that was drawn if a filter sends the RPC to a cluster that is not of the route.
func (c *call) destination(cluster string) *xdsresource.WeightedCluster {
	if cluster == c.app.Cluster {
		return c.app.Weighted
	}
	return cmp.Or(c.entry(cluster), c.app.Weighted)
}

func (c *call) entry(cluster string) *xdsresource.WeightedCluster {
	clusters := ClustersOf(c.app.Route)
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
	return c.app.Context, c.app.Authority, c.app.ContentType
}

// Hash implements decision.RPC. Hash policies see the RPC as the application made it.
func (c *call) Hash() (uint64, bool) {
	return c.app.Route.Hash(&c.app.RPC, c.routes.Channel.id)
}

// start sends the RPC down the chain.
func (c *call) start(ctx context.Context) (grpc.ClientStream, error) {
	chain := c.app.Chain
	if chain.Err != nil {
		return nil, chain.Err
	}
	top, err := httpfilter.NewNext(c, chain.Interceptors(c.app.Trace)...).NewStream(ctx, &c.rpc)
	switch {
	case err != nil:
		return nil, statusOf(err)
	case top == nil:
		return nil, status.Error(codes.Internal, "an HTTP filter returned neither a stream nor an error")
	}
	return top, nil
}

// Unary carries out a unary RPC. ctx has its deadline.
func (r *Routes) Unary(ctx context.Context, rpc *RPC, req, reply any, invoker grpc.UnaryInvoker, opts []grpc.CallOption) error {
	defer runtime.KeepAlive(rpc.Chain)
	c := r.newCall(rpc, nil, opts)
	c.invoker = invoker
	defer c.endMirrors()
	top, err := c.start(ctx)
	if err == nil {
		err = statusOf(httpfilter.Exchange(top, req, reply))
		callOptions(opts).report(top, c.app.Context)
	}
	grpcbridge.Finish(opts, err)
	return err
}

// Stream starts a streaming RPC, which timeout bounds if it is above 0.
func (r *Routes) Stream(rpc *RPC, desc *grpc.StreamDesc, streamer grpc.Streamer, opts []grpc.CallOption, timeout time.Duration) (stream grpc.ClientStream, err error) {
	c := r.newCall(rpc, desc, opts)
	s := &appStream{call: c, streamer: streamer, opts: opts}
	c.streaming = s
	ctx := rpc.Context
	if timeout > 0 {
		ctx, s.cancel = context.WithTimeout(ctx, timeout)
	} else {
		ctx, s.cancel = context.WithCancel(ctx)
	}
	c.rpc.Options = s.opts.without(nil, reports)
	// The end of the channel ends RPCs whose application has stopped reading.
	c.rpc.AddOptions(grpc.OnFinish(func(err error) {
		if r.Channel.ClientConn.GetState() == connectivity.Shutdown {
			c.ended(err)
		}
	}))
	err = outcomes.ErrPanic // unless the chain returns
	defer func() {
		if err != nil {
			c.ended(err)
		}
	}()
	if s.ClientStream, err = c.start(ctx); err != nil {
		return nil, err
	}
	s.stop = context.AfterFunc(ctx, func() { c.ended(status.FromContextError(ctx.Err()).Err()) })
	return s, nil
}

// ended is called when a streaming RPC has ended, maybe more than once.
func (c *call) ended(err error) {
	c.streaming.ended.Do(func() {
		c.app.End(err) // before the application hears of the end
		grpcbridge.Finish(c.streaming.opts, err)
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
	opts              callOptions // of the application
	cancel            context.CancelFunc
	stop              func() bool // ends the wait for the end of the context
	ended             sync.Once
	last              error // what RecvMsg returns once it has returned the one response, or an error in its place
}

func (s *appStream) SendMsg(m any) error {
	err := s.ClientStream.SendMsg(m)
	switch {
	case err == io.EOF && s.call.rpc.StreamDesc.ClientStreams:
		return err
	case err == nil || err == io.EOF:
		return nil // As in gRPC, RecvMsg returns the status.
	}
	err = statusOf(err)
	s.end(err)
	return err
}

func (s *appStream) RecvMsg(m any) error {
	if s.last != nil {
		return s.last
	}
	err := s.ClientStream.RecvMsg(m)
	switch {
	case err == nil && s.call.rpc.StreamDesc.ServerStreams:
		return nil
	case err == io.EOF && !s.call.rpc.StreamDesc.ServerStreams:
		err = status.Error(codes.Internal, "the RPC ended with status OK and no response message")
	case err != nil && err != io.EOF:
		err = statusOf(err)
	}
	if s.last = err; err == nil {
		s.last = io.EOF // as in gRPC
	}
	s.opts.report(s.ClientStream, s.call.app.Context)
	s.end(err)
	return err
}

func (s *appStream) end(err error) {
	s.stop()
	if err == io.EOF {
		err = nil
	}
	s.call.ended(err)
}

// statusOf makes the error of a filter a status error.
func statusOf(err error) error {
	if _, ok := status.FromError(err); ok {
		return err // It may be nil.
	}
	return status.FromContextError(err).Err() // UNKNOWN, unless it is of a context
}
