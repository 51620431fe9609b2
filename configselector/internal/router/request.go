package router

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/headeredit"
	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// request is an RPC as the router sends it to gRPC.
type request struct {
	call *call // nil: not in use
	// rpc is the RPC as the last filter passed it on. Only the router changes it from then on.
	rpc      *httpfilter.RPC
	decision decision.Decision
	extra    decision.Extra
	opts     []grpc.CallOption  // of rpc, and without those that report the end if the RPC is unary
	room     [6]grpc.CallOption // for opts of a unary RPC, unless there are more; with seven, a call would take 1,024 bytes, not 896
	attempt  attempt            // the first one
}

// authority returns the ":authority", unless the picker replaces it.
func (r *request) authority() string {
	return cmp.Or(r.extra.Authority, r.call.routes.Channel.Authority)
}

// Send implements httpfilter.End: it is the router, the end of every chain.
func (c *call) Send(ctx context.Context, rpc *httpfilter.RPC) (grpc.ClientStream, error) {
	if c.app.Weighted == nil {
		return c.reply(ctx, rpc), nil
	}
	r := &c.first
	// A filter that sends the RPC more than once has to hand on clones. If it hands on the original again, the streams are separate all
	// the same.
	if rpc != &c.rpc || r.call != nil {
		r = new(request)
	}
	to := c.destination(rpc.Cluster)
	if err := c.prepare(r, ctx, rpc, to); err != nil {
		return nil, err
	}
	s, err := r.stream()
	if err != nil {
		return nil, err
	}
	s = r.mirrored(s)
	if h := c.app.Route.HeadersFor(to); h != nil && len(h.Response) > 0 {
		s = editResponse(s, h.Response)
	}
	return s, nil
}

// stream begins the RPC.
func (r *request) stream() (grpc.ClientStream, error) {
	if r.call.unary() {
		r.opts = append(callOptions(r.rpc.Options).without(r.room[:0], reports), r.rpc.AddedOptions()...)
	} else {
		r.opts = slices.Concat(r.rpc.Options, r.rpc.AddedOptions())
	}
	if retry := r.newRetrier(); retry.resends() {
		return newReplay(r, retry)
	}
	if !r.call.unary() && r.extra.Trace == nil {
		return r.call.open(&r.decision, r.opts)
	}
	a := &r.attempt
	a.of(r.call, &r.decision, r.opts)
	if a.open(); a.unopened {
		return nil, a.err
	}
	return a.ClientStream, nil
}

// editResponse edits the response headers, or the trailers of an RPC without headers.
func editResponse(s grpc.ClientStream, edits xdsresource.HeaderEdits) grpc.ClientStream {
	return httpfilter.EditResponse(s, edits.Apply, func(md metadata.MD, only bool) {
		if only {
			edits.Apply(md)
		}
	})
}

// reply ends an RPC that the route answers itself.
func (c *call) reply(ctx context.Context, rpc *httpfilter.RPC) grpc.ClientStream {
	x := c.matchable(ctx, rpc)
	location, err := answer(c.app.Route, &x)
	trailer := metadata.MD{}
	if location != "" {
		trailer.Set("location", location)
	}
	if h := c.app.Route.HeadersFor(nil); h != nil {
		h.Response.Apply(trailer)
	}
	return httpfilter.EndedStream(ctx, err, trailer)
}

// answer returns the status of an RPC that a route answers itself, and where it is redirected to, if
// it is.
func answer(route *xdsresource.Route, x *matching.RPC) (location string, err error) {
	switch action := route.Action.(type) {
	case *xdsresource.DirectResponse:
		err = status.Error(action.Code, action.Message())
	case *xdsresource.Redirect:
		location = action.Location(&route.Match, x)
		err = status.Errorf(action.Code, "redirected (%d) to %s", action.HTTPStatus, bounds.Text(location, bounds.ErrorText))
	}
	return location, err
}

// matchable returns the RPC as the filters left it.
func (c *call) matchable(ctx context.Context, rpc *httpfilter.RPC) matching.RPC {
	x := c.app.RPC
	x.Context, x.Method = ctx, rpc.Method
	if !c.app.chosen {
		x.Authority = rpc.Authority
	}
	return x
}

// prepare fills in r, with the rewrites and header edits of the route.
func (c *call) prepare(r *request, ctx context.Context, rpc *httpfilter.RPC, to *xdsresource.WeightedCluster) error {
	route := c.app.Route
	pinned := rpc.Cluster != c.app.Cluster
	if pinned && !c.routes.has(rpc.Cluster) {
		return c.routes.failure(rpc.Method, fmt.Sprintf("an HTTP filter sends the RPC to cluster %s, which no route of the virtual host mentions", bounds.Quote(rpc.Cluster)))
	}
	method, ok := route.RewritePath(rpc.Method)
	if !ok {
		return c.routes.failure(rpc.Method, fmt.Sprintf("route %s rewrites the method to %s, which is not a path", bounds.Quote(route.Name), bounds.Quote(method)))
	}
	if h := route.HeadersFor(to); h != nil {
		ctx = headeredit.Outgoing(ctx, h.Request)
	}
	r.call, r.rpc = c, rpc
	c.rewriteAuthority(r, ctx, to)
	d := &r.decision
	d.Channel, d.Version, d.Method = c.routes.Channel.ClientConn, c.routes.Version, c.app.Method
	d.Context, d.Cluster, d.Extra = ctx, rpc.Cluster, &r.extra
	r.extra.RPC, r.extra.Trace = c, c.app.Trace
	r.extra.WireMethod = method
	r.extra.Pinned = pinned
	if o := rpc.HostOverride; o != nil {
		r.extra.HostOverride = o
		o.SetCluster(rpc.Cluster)
	}
	return nil
}

// rewriteAuthority sets the authority, unless the picker does. gRPC checks it against the
// server's certificate, so a rewrite cannot bypass TLS.
func (c *call) rewriteAuthority(r *request, ctx context.Context, to *xdsresource.WeightedCluster) {
	own := c.routes.Channel.Authority
	if c.app.chosen {
		r.extra.Authority = c.app.Authority
		return
	}
	authority := r.rpc.Authority
	rewrite := c.app.Route.Rewrite
	if rewrite != nil || to.Authority != "" {
		x := c.matchable(ctx, r.rpc)
		authority = cmp.Or(c.app.Route.RewriteAuthority(&x, to), authority)
	}
	if authority != own {
		r.extra.Authority = authority
	}
	// A call option would take precedence over the picker.
	r.extra.AutoHost = rewrite != nil && rewrite.AutoHost
	if authority != own && !r.extra.AutoHost {
		r.rpc.AddOptions(grpc.CallAuthority(authority))
	}
}
