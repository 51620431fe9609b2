package explain

import (
	"cmp"
	"fmt"
	"strings"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/internal/dialect"
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
	levelVirtualHost = "virtual host"
	levelRoute       = "route"
	levelWeighted    = "weighted cluster"
)

// routeExplainer explains one route that RPCs take.
type routeExplainer struct {
	*explainer
	route *xdsresource.Route
	index int     // of the route in the virtual host of the resource
	share float64 // of all RPCs
}

// rawRoute returns the route as a message, and at where a part of it was written.
func (e routeExplainer) rawRoute() *routepb.Route { return e.raw.route(e.index) }

func (e routeExplainer) at(parts ...string) string { return e.raw.routeAt(e.index, parts...) }

// action describes what happens to the RPCs that take the route.
func (e routeExplainer) action() *Action {
	a := &Action{Filters: e.filters(-1)}
	switch action := e.route.Action.(type) {
	case *xdsresource.DirectResponse:
		a.Kind, a.Code, a.Message = kindDirectResponse, codeName(action.Code), action.Message()
	case *xdsresource.Redirect:
		a.Kind, a.Code = kindRedirect, codeName(action.Code)
		a.Message = "redirected to " + action.Location(&e.route.Match, &e.rpc)
	case *xdsresource.Unroutable:
		a.Kind, a.Code, a.Message = kindUnroutable, "UNAVAILABLE", action.Reason
	case *xdsresource.Forward:
		a.Kind = kindForward
		e.forward(a, action)
	}
	if a.Kind != kindForward && e.implementation.IsGRPC() {
		a.Code, a.Message = "UNAVAILABLE", e.implementation.name+" does not carry out the action "+a.Kind
	}
	a.Timeout = e.timeout()
	a.Headers = e.headers(e.route.HeadersFor(nil))
	e.placeHeaders(a.Headers)
	return a
}

// forward adds what is for RPCs that go to a cluster.
func (e routeExplainer) forward(a *Action, f *xdsresource.Forward) {
	a.Retry = e.retry()
	a.HashPolicies = e.hashPolicies()
	a.Path = e.pathRewrite()
	a.Authority = e.authorityRewrite()
	total := f.TotalWeight()
	for i := range f.Clusters {
		a.Destinations = append(a.Destinations, e.destination(a, &f.Clusters[i], i, total))
	}
	for _, c := range e.rawRoute().GetRoute().GetWeightedClusters().GetClusters() {
		if c.GetWeight().GetValue() == 0 {
			a.Destinations = append(a.Destinations, Destination{Cluster: c.GetName(), Header: c.GetClusterHeader(), At: e.at(provenance.BackendRefs)})
		}
	}
	for i := range e.route.Mirrors {
		a.Mirrors = append(a.Mirrors, e.mirror(&e.route.Mirrors[i]))
	}
}

// destination describes c, the i-th cluster of the route, which a describes.
func (e routeExplainer) destination(a *Action, c *xdsresource.WeightedCluster, i int, total uint32) Destination {
	d := Destination{
		Cluster: c.Cluster(&e.rpc), Header: c.Header, Weight: c.Weight,
		Percent: percent(100 * float64(c.Weight) / float64(total)),
		At:      e.at(provenance.BackendRefs),
	}
	if len(c.Overrides) > 0 {
		d.Filters = e.filters(i)
	}
	if d.Error = e.misnamed(c.Header, d.Cluster); d.Error == "" {
		e.useCluster(d.Cluster).Share += e.share * d.Percent / 100 * passed(a.filtersOf(&d))
	}
	if c.Headers != nil {
		d.Headers = e.headers(c.Headers)
	}
	if c.Authority != "" && (e.route.Rewrite == nil || e.route.Rewrite.Authority == "") {
		d.Authority = &Rewrite{
			From: e.request.Authority, To: e.route.RewriteAuthority(e.edited(c), c), By: "weighted_clusters.clusters.host_rewrite_literal",
			Ignored: e.implementation.about(dialect.HostRewrites), At: d.At,
		}
	}
	return d
}

// misnamed returns why the cluster that a header names cannot be used, or "". header is empty if the
// route names the cluster.
func (e routeExplainer) misnamed(header, cluster string) string {
	switch {
	case header == "", e.canSelect(cluster):
		return ""
	case cluster == "":
		return fmt.Sprintf("the RPC does not have the header %q, which names the cluster", header)
	default:
		return fmt.Sprintf("header %q names cluster %q, which no route of the virtual host mentions", header, cluster)
	}
}

// canSelect reports whether a route of the virtual host mentions a cluster.
func (e *explainer) canSelect(cluster string) bool {
	if e.selectable == nil {
		e.selectable = make(map[string]bool)
		for _, name := range e.virtualHost.Clusters() {
			e.selectable[name] = true
		}
	}
	return e.selectable[cluster]
}

// edited returns the RPC after the edits of its headers for a cluster of the route, nil for any: as the
// route's mirrors and rewrites of the authority see it.
func (e routeExplainer) edited(c *xdsresource.WeightedCluster) *matching.RPC {
	if f, ok := e.route.Action.(*xdsresource.Forward); ok && c == nil && len(f.Clusters) == 1 {
		c = &f.Clusters[0]
	}
	h := e.route.HeadersFor(c)
	if h == nil || len(h.Request) == 0 {
		return &e.rpc
	}
	md := metadata.MD(e.request.Headers).Copy()
	h.Request.Apply(md)
	rpc := e.rpc
	rpc.Metadata = func() metadata.MD { return md }
	return &rpc
}

func (e routeExplainer) mirror(m *xdsresource.Mirror) Destination {
	d := Destination{Cluster: m.Target(e.edited(nil)), Header: m.Header, Percent: 100, Ignored: e.implementation.about(dialect.Mirrors)}
	if m.FractionPerMillion != nil {
		d.Percent = percent(100 * float64(*m.FractionPerMillion) / matching.Million)
	}
	if len(e.rawRoute().GetRoute().GetRequestMirrorPolicies()) > 0 {
		d.At = e.at(provenance.Filters)
	}
	if d.Error = e.misnamed(m.Header, d.Cluster); d.Error == "" && d.Ignored == "" {
		e.useCluster(d.Cluster).Mirror = true
	}
	d.Headers = e.headers(&xdsresource.HeaderMutations{Request: m.Headers})
	return d
}

// timeout returns the bound on the duration of RPCs (gRFC A31), nil if nothing sets one.
func (e routeExplainer) timeout() *Setting {
	switch {
	case e.route.MaxStreamDuration != nil:
		return &Setting{Value: describeDuration(*e.route.MaxStreamDuration), Level: levelRoute, At: e.at(provenance.Timeouts, provenance.Matches)}
	case e.listener.MaxStreamDuration > 0:
		return &Setting{Value: describeDuration(e.listener.MaxStreamDuration), Level: levelListener}
	default:
		return nil
	}
}

func (e routeExplainer) retry() *Retry {
	p := e.route.Retry
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
	if p.Hedges {
		r.Hedged = cmp.Or(p.PerTryTimeout, p.PerTryIdleTimeout).String()
	}
	if e.rawRoute().GetRoute().GetRetryPolicy() != nil {
		r.Level, r.At = levelRoute, e.at(provenance.Retry, provenance.Timeouts, provenance.Filters)
	}
	return r
}

func (e routeExplainer) hashPolicies() (list []HashPolicy) {
	headers := e.rpc.Headers()
	hashed := false
	for i := range e.route.HashPolicies {
		p := &e.route.HashPolicies[i]
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

func (e routeExplainer) pathRewrite() *Rewrite {
	w := e.route.Rewrite
	if w == nil || w.Prefix == "" && w.Regex == nil {
		return nil
	}
	r := &Rewrite{From: e.request.Method, By: "prefix_rewrite", Ignored: e.implementation.about(dialect.PathRewrites), At: e.at(provenance.Filters)}
	if w.Regex != nil {
		r.By = "regex_rewrite"
	}
	to, ok := e.route.RewritePath(e.request.Method)
	if r.To = to; !ok {
		r.Error = "the result is not a path; RPCs fail with UNAVAILABLE"
	}
	return r
}

func (e routeExplainer) authorityRewrite() *Rewrite {
	r := &Rewrite{From: e.request.Authority, At: e.at(provenance.Filters)}
	raw := e.rawRoute().GetRoute()
	switch host := raw.GetHostRewriteSpecifier().(type) {
	case *routepb.RouteAction_HostRewriteLiteral:
		r.By, r.To = "host_rewrite_literal", host.HostRewriteLiteral
	case *routepb.RouteAction_HostRewriteHeader:
		r.By = "host_rewrite_header"
		if e.route.Rewrite != nil && e.route.Rewrite.AuthorityHeader != "" {
			r.To = e.route.RewriteAuthority(e.edited(nil), new(xdsresource.WeightedCluster))
		} else {
			r.To = e.rpc.FirstHeader(strings.ToLower(host.HostRewriteHeader))
		}
		r.To = cmp.Or(r.To, r.From)
	case *routepb.RouteAction_AutoHostRewrite:
		if !host.AutoHostRewrite.GetValue() {
			return nil
		}
		r.By = "auto_host_rewrite"
	default:
		return nil
	}
	switch w := e.route.Rewrite; {
	case e.implementation.IsGRPC() && r.By != "auto_host_rewrite":
		r.Ignored = e.implementation.about(dialect.HostRewrites)
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
