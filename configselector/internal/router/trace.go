package router

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/rpctrace"
)

// Traced reports to the RPC's trace where it was routed. err is the status that it ends with.
func (r *Routes) Traced(rpc *RPC, err error) {
	route := rpctrace.Route{
		Method: rpc.Method, RouteConfig: r.RouteConfigName, VirtualHost: r.VirtualHost.Name,
		Cluster: rpc.Cluster, Err: err,
	}
	if rpc.Route != nil {
		route.Name, route.Match = rpc.Route.Name, rpc.Route.Match.Paths()
	}
	rpc.Trace.Routed(route)
}

// trace returns the hooks for the RPC, or nil.
func (c *call) trace() *rpctrace.Trace { return c.first.extra.Trace }

// attemptEnded is called when the n-th attempt of an RPC has ended.
func attemptEnded(d *decision.Decision, n int, err error) {
	if t := d.Trace(); t != nil {
		t.AttemptEnded(rpctrace.Attempt{Number: n, Cluster: d.Cluster, Err: err})
	}
}

// retried is called before the wait for a retry of an attempt that ended with err.
func (r *request) retried(retry *retrier, err error) {
	if t := r.extra.Trace; t != nil {
		t.Retried(rpctrace.Retry{Attempt: retry.made + 1, Delay: retry.delay, Err: err})
	}
}

// traced returns the interceptors of a chain, each of which reports to t.
func traced(chain *Chain, t *rpctrace.Trace) []httpfilter.Interceptor {
	interceptors := make([]httpfilter.Interceptor, len(chain.Interceptors))
	for i, next := range chain.Interceptors {
		interceptors[i] = tracedFilter{Interceptor: next, name: chain.Names[i], trace: t}
	}
	return interceptors
}

// tracedFilter reports the start and the end of a filter.
type tracedFilter struct {
	httpfilter.Interceptor
	name  string
	trace *rpctrace.Trace
}

func (f tracedFilter) NewStream(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
	f.trace.FilterStarted(rpctrace.Filter{Name: f.name})
	begin := time.Now()
	rest := &restOfChain{Next: next}
	s, err := f.Interceptor.NewStream(ctx, rpc, httpfilter.NewNext(rest))
	f.trace.FilterEnded(rpctrace.Filter{Name: f.name, PassedOn: rest.used.Load(), Err: err, Duration: time.Since(begin)})
	return s, err
}

// restOfChain is the rest of a chain as an End that records whether it was used.
type restOfChain struct {
	httpfilter.Next
	used atomic.Bool
}

func (r *restOfChain) Send(ctx context.Context, rpc *httpfilter.RPC) (grpc.ClientStream, error) {
	r.used.Store(true)
	return r.NewStream(ctx, rpc)
}
