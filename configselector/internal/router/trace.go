package router

import (
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
