package explain

import (
	"fmt"
	"slices"
	"strings"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc/codes"

	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/provenance"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// The kinds of Action.
const (
	kindForward        = "forward"
	kindDirectResponse = "direct_response"
	kindRedirect       = "redirect"
	kindUnroutable     = "unroutable"
)

// The levels of configuration.
const (
	levelListener    = "Listener"
	levelConfig      = "RouteConfiguration"
	levelVirtualHost = "virtual host"
	levelRoute       = "route"
	levelWeighted    = "weighted cluster"
)

// action says what becomes of the RPCs that take a route.
func (e *explainer) action(r *Route, route *xdsresource.Route) *Action {
	a := &Action{}
	switch action := route.Action.(type) {
	case *xdsresource.DirectResponse:
		a.Kind, a.Code, a.Message = kindDirectResponse, codeName(action.Code), action.Body
	case *xdsresource.Redirect:
		a.Kind, a.Code = kindRedirect, codeName(action.Code)
		a.Message = "redirected to " + action.Location(&route.Match, &e.rpc)
	case *xdsresource.Unroutable:
		a.Kind, a.Code, a.Message = kindUnroutable, "UNAVAILABLE", action.Reason
	case *xdsresource.Forward:
		a.Kind = kindForward
		e.forward(a, r, route, action)
	}
	if a.Kind != kindForward && e.dialect.grpc {
		a.Code, a.Message = "UNAVAILABLE", e.dialect.name+" does not carry out the action "+a.Kind
	}
	a.Filters = e.filters(r.Index, route, nil)
	a.Timeout = e.timeout(r.Index, route)
	a.Headers = e.headers(route.HeadersFor(nil))
	e.placeHeaders(r.Index, a.Headers)
	return a
}

// forward adds what is for RPCs that go to a cluster.
func (e *explainer) forward(a *Action, r *Route, route *xdsresource.Route, f *xdsresource.Forward) {
	raw := e.raw.route(r.Index)
	a.Retry = e.retry(r.Index, route)
	a.HashPolicies = e.hashPolicies(route)
	a.Path = e.pathRewrite(r.Index, route)
	a.Authority = e.authorityRewrite(r.Index, route)
	for i := range f.Clusters {
		a.Destinations = append(a.Destinations, e.destination(r, route, f, i))
	}
	for i := range route.Mirrors {
		a.Mirrors = append(a.Mirrors, e.mirror(r, raw, &route.Mirrors[i]))
	}
}

func (e *explainer) destination(r *Route, route *xdsresource.Route, f *xdsresource.Forward, i int) Destination {
	c := &f.Clusters[i]
	total := uint64(0)
	for j := range f.Clusters {
		total += uint64(f.Clusters[j].Weight)
	}
	d := Destination{
		Cluster: c.Cluster(&e.rpc), Header: c.Header, Weight: c.Weight,
		Percent: percent(100 * float64(c.Weight) / float64(total)),
		At:      e.raw.routeAt(r.Index, provenance.BackendRefs),
	}
	if d.Error = e.misnamed(c.Header, d.Cluster); d.Error == "" {
		e.clusters.add(d.Cluster, r.Share*d.Percent/100)
	}
	if len(c.Overrides) > 0 {
		d.Filters = e.filters(r.Index, route, c)
	}
	if c.Headers != nil {
		d.Headers = e.headers(c.Headers)
	}
	if c.Authority != "" && (route.Rewrite == nil || route.Rewrite.Authority == "") {
		d.Authority = &Rewrite{
			From: e.request.Authority, To: route.RewriteAuthority(&e.rpc, c), By: "weighted_clusters.clusters.host_rewrite_literal",
			Ignored: e.dialect.ignores("it"), At: d.At,
		}
	}
	return d
}

// misnamed returns why the cluster that a header names cannot be used, or "". header is empty if the
// route names the cluster.
func (e *explainer) misnamed(header, cluster string) string {
	switch {
	case header == "", slices.Contains(e.virtualHost.Clusters(), cluster):
		return ""
	case cluster == "":
		return fmt.Sprintf("the RPC does not have the header %q, which names the cluster", header)
	default:
		return fmt.Sprintf("header %q names cluster %q, which no route of the virtual host mentions", header, cluster)
	}
}

func (e *explainer) mirror(r *Route, raw *routepb.Route, m *xdsresource.Mirror) Destination {
	d := Destination{Cluster: m.Target(&e.rpc), Header: m.Header, Percent: 100, Ignored: e.dialect.ignores("request_mirror_policies")}
	if m.FractionPerMillion != nil {
		d.Percent = percent(100 * float64(*m.FractionPerMillion) / matching.Million)
	}
	if len(raw.GetRoute().GetRequestMirrorPolicies()) > 0 {
		d.At = e.raw.routeAt(r.Index, provenance.Filters)
	}
	if d.Error = e.misnamed(m.Header, d.Cluster); d.Error == "" && d.Ignored == "" {
		e.clusters.mirror(d.Cluster)
	}
	d.Headers = e.headers(&xdsresource.HeaderMutations{Request: m.Headers})
	return d
}

// timeout returns the bound on the duration of RPCs (gRFC A31), nil if nothing sets one.
func (e *explainer) timeout(i int, route *xdsresource.Route) *Setting {
	switch {
	case route.MaxStreamDuration != nil:
		return &Setting{Value: describeDuration(*route.MaxStreamDuration), Level: levelRoute, At: e.raw.routeAt(i, provenance.Matches)}
	case e.listener.MaxStreamDuration > 0:
		return &Setting{Value: describeDuration(e.listener.MaxStreamDuration), Level: levelListener}
	default:
		return nil
	}
}

func (e *explainer) retry(i int, route *xdsresource.Route) *Retry {
	p := route.Retry
	if p == nil {
		return nil
	}
	r := &Retry{
		MaxAttempts: p.MaxAttempts, BaseBackoff: p.BaseBackoff.String(), MaxBackoff: p.MaxBackoff.String(), Level: levelVirtualHost,
	}
	for c := codes.OK; c <= codes.Unauthenticated; c++ {
		if p.Codes.Has(c) {
			r.On = append(r.On, codeName(c))
		}
	}
	if e.raw.route(i).GetRoute().GetRetryPolicy() != nil {
		r.Level, r.At = levelRoute, e.raw.routeAt(i, provenance.Filters)
	}
	return r
}

func (e *explainer) hashPolicies(route *xdsresource.Route) (list []HashPolicy) {
	headers := e.rpc.Headers()
	hashed := false
	for i := range route.HashPolicies {
		p := &route.HashPolicies[i]
		h := HashPolicy{Terminal: p.Terminal}
		switch p.Kind {
		case xdsresource.HashChannelID:
			h.Of, h.Value = "the channel", "a random number for each channel"
		case xdsresource.HashHeader:
			h.Of = "header " + p.Header
			value, present := headers.Get(p.Header)
			if !present {
				h.Reason = "the RPC does not have the header"
				break
			}
			if p.Rewrite != nil {
				value = p.Rewrite.Replace(value)
			}
			h.Value = value
		default:
			h.Of, h.Reason = "something that gRPC does not know", "gRPC ignores it"
		}
		if list = append(list, h); h.Reason == "" {
			hashed = true
		}
		if p.Terminal && hashed {
			break // Those behind it do not count.
		}
	}
	return list
}

func (e *explainer) pathRewrite(i int, route *xdsresource.Route) *Rewrite {
	w := route.Rewrite
	if w == nil || w.Prefix == "" && w.Regex == nil {
		return nil
	}
	r := &Rewrite{From: e.request.Method, By: "prefix_rewrite", Ignored: e.dialect.ignores("it"), At: e.raw.routeAt(i, provenance.Filters)}
	if w.Regex != nil {
		r.By = "regex_rewrite"
	}
	to, ok := route.RewritePath(e.request.Method)
	if r.To = to; !ok {
		r.Error = "the result is not a path; RPCs fail with UNAVAILABLE"
	}
	return r
}

func (e *explainer) authorityRewrite(i int, route *xdsresource.Route) *Rewrite {
	r := &Rewrite{From: e.request.Authority, At: e.raw.routeAt(i, provenance.Filters)}
	raw := e.raw.route(i).GetRoute()
	switch host := raw.GetHostRewriteSpecifier().(type) {
	case *routepb.RouteAction_HostRewriteLiteral:
		r.By, r.To = "host_rewrite_literal", host.HostRewriteLiteral
	case *routepb.RouteAction_HostRewriteHeader:
		r.By, r.To = "host_rewrite_header", e.rpc.FirstHeader(strings.ToLower(host.HostRewriteHeader))
		if r.To == "" {
			r.To = r.From
		}
	case *routepb.RouteAction_AutoHostRewrite:
		if !host.AutoHostRewrite.GetValue() {
			return nil
		}
		r.By = "auto_host_rewrite"
	default:
		return nil
	}
	switch w := route.Rewrite; {
	case e.dialect.grpc && r.By != "auto_host_rewrite":
		r.Ignored = e.dialect.ignores("it")
	case w == nil || w.Authority == "" && w.AuthorityHeader == "" && !w.AutoHost:
		r.Ignored = "it needs trusted_xds_server for the management server in the bootstrap, which a dump does not tell (gRFC A81)"
	}
	return r
}

// codeName returns the name of a code as gRFCs write it.
func codeName(c codes.Code) string {
	if name, ok := codeNames[c]; ok {
		return name
	}
	return fmt.Sprintf("code %d", c)
}

var codeNames = map[codes.Code]string{
	codes.OK: "OK", codes.Canceled: "CANCELLED", codes.Unknown: "UNKNOWN", codes.InvalidArgument: "INVALID_ARGUMENT",
	codes.DeadlineExceeded: "DEADLINE_EXCEEDED", codes.NotFound: "NOT_FOUND", codes.AlreadyExists: "ALREADY_EXISTS",
	codes.PermissionDenied: "PERMISSION_DENIED", codes.ResourceExhausted: "RESOURCE_EXHAUSTED",
	codes.FailedPrecondition: "FAILED_PRECONDITION", codes.Aborted: "ABORTED", codes.OutOfRange: "OUT_OF_RANGE",
	codes.Unimplemented: "UNIMPLEMENTED", codes.Internal: "INTERNAL", codes.Unavailable: "UNAVAILABLE",
	codes.DataLoss: "DATA_LOSS", codes.Unauthenticated: "UNAUTHENTICATED",
}
