package configselector

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/xdsresource"
)

// request is an RPC as the router hands it to gRPC.
type request struct {
	call     *call
	decision decision.Decision
	extra    decision.Extra
	// options are httpfilter.RPC.Options. added are those of filters and of the
	// router, which go behind.
	options, added []grpc.CallOption
	// authority is what ":authority" will be, as far as is known.
	authority string
}

// Send implements httpfilter.End: it is the router, which every chain ends in.
func (c *call) Send(ctx context.Context, rpc *httpfilter.RPC) (grpc.ClientStream, error) {
	if c.to.weighted == nil {
		return c.reply(ctx, rpc), nil
	}
	u := &c.first
	if !c.taken.CompareAndSwap(false, true) {
		u = new(unaryStream)
	}
	r := &u.request
	if err := c.prepare(r, ctx, rpc); err != nil {
		return nil, err
	}
	var s grpc.ClientStream = u
	if !rpc.Unary() {
		var err error
		if s, err = r.stream(); err != nil {
			return nil, err
		}
	}
	if h := c.to.route.HeadersFor(c.to.weighted); h != nil && len(h.Response) > 0 {
		s = editResponse(s, h.Response)
	}
	return s, nil
}

// editResponse edits response headers, or the trailers of an RPC that ended
// without headers.
func editResponse(s grpc.ClientStream, edits xdsresource.HeaderEdits) grpc.ClientStream {
	return httpfilter.EditResponse(s, edits.Apply, func(md metadata.MD, only bool) {
		if only {
			edits.Apply(md)
		}
	})
}

// reply ends an RPC that the route answers by itself.
func (c *call) reply(ctx context.Context, rpc *httpfilter.RPC) grpc.ClientStream {
	var err error
	trailer := metadata.MD{}
	switch action := c.to.route.Action.(type) {
	case *xdsresource.DirectResponse:
		err = status.Error(action.Code, action.Body)
	case *xdsresource.Redirect:
		x := c.matchable(ctx, rpc)
		location := action.Location(&c.to.route.Match, &x)
		err = status.Errorf(action.Code, "redirected (%d) to %s", action.HTTPStatus, location)
		trailer.Set("location", location)
	}
	if h := c.to.route.HeadersFor(nil); h != nil {
		h.Response.Apply(trailer)
	}
	return httpfilter.EndedStream(ctx, err, trailer)
}

// matchable returns the RPC as the filters left it.
func (c *call) matchable(ctx context.Context, rpc *httpfilter.RPC) xdsresource.RPC {
	h := c.h
	if !h.chosen {
		h.authority = rpc.Authority
	}
	return c.s.matchable(ctx, rpc.Method, &h)
}

// prepare makes of an RPC what the route says.
func (c *call) prepare(r *request, ctx context.Context, rpc *httpfilter.RPC) error {
	route, weighted := c.to.route, c.to.weighted
	pinned := rpc.Cluster != c.to.cluster
	if pinned && !c.s.has(rpc.Cluster) {
		return c.s.failure(rpc.Method, fmt.Sprintf("an HTTP filter sends the RPC to cluster %q, which no route of the virtual host mentions", rpc.Cluster))
	}
	method, ok := route.RewritePath(rpc.Method)
	if !ok {
		return c.s.failure(rpc.Method, fmt.Sprintf("the rewrite of route %q makes of the method %q, which is no path", route.Name, method))
	}
	if h := route.HeadersFor(weighted); h != nil && len(h.Request) > 0 {
		md, _ := metadata.FromOutgoingContext(ctx)
		if md == nil {
			md = metadata.MD{}
		}
		h.Request.Apply(md)
		ctx = metadata.NewOutgoingContext(ctx, md)
	}
	r.call, r.options, r.added = c, rpc.Options, rpc.AddedOptions()
	c.rewriteAuthority(r, ctx, rpc)
	r.decision = decision.Decision{
		Context: ctx,
		Channel: c.s.ch.ClientConn,
		Version: c.s.c.Version,
		Method:  c.method,
		Cluster: rpc.Cluster,
		Extra:   &r.extra,
	}
	r.extra.RPC = c
	r.extra.WireMethod = method
	r.extra.Pinned = pinned
	return nil
}

// rewriteAuthority finds out the authority to ask gRPC for, unless the picker
// is to choose it. gRPC checks it against the server's certificate, so that no
// rewrite gets around TLS.
func (c *call) rewriteAuthority(r *request, ctx context.Context, rpc *httpfilter.RPC) {
	if c.h.chosen {
		r.authority = c.h.authority
		return
	}
	r.authority = rpc.Authority
	rewrite := c.to.route.Rewrite
	if rewrite != nil || c.to.weighted.Authority != "" {
		x := c.matchable(ctx, rpc)
		if a := c.to.route.RewriteAuthority(&x, c.to.weighted); a != "" {
			r.authority = a
		}
	}
	own := c.s.ch.Authority
	if rewrite != nil && rewrite.AutoHost {
		// A call option would go before what the picker says.
		r.extra.AutoHost = true
		if r.authority != own {
			r.extra.AutoHostElse = r.authority
		}
		return
	}
	if r.authority != own {
		r.added = append(r.added[:len(r.added):len(r.added)], grpc.CallAuthority(r.authority))
	}
}

// attempt returns the context for an attempt of the request. n counts the
// attempts before it.
func (r *request) attempt(n int) *decision.Decision {
	if n == 0 {
		return &r.decision
	}
	d := r.decision
	d.Context = metadata.AppendToOutgoingContext(d.Context, previousAttempts, itoa(n))
	return &d
}
