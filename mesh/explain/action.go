package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc/codes"

	"github.com/dynxds/dynxds/internal/dialect"
	"github.com/dynxds/dynxds/internal/headeredit"
	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/outcomes"
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
	// weighted are the clusters as messages, as in the Forward.
	weighted []*routepb.WeightedCluster_ClusterWeight
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
	a.Settings = slices.Concat(e.timeout(), a.Settings, e.headers(e.route.HeadersFor(nil), e.editedHere()))
	return a
}

// forward adds what is for RPCs that go to a cluster.
func (e routeExplainer) forward(a *Action, f *xdsresource.Forward) {
	a.Settings = slices.Concat(e.retry(), e.hashPolicies(), e.pathRewrite(a), e.authorityRewrite())
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
		d.Settings = e.headers(c.Headers, nil)
	}
	if c.Authority != "" && (e.route.Rewrite == nil || e.route.Rewrite.Authority == "") {
		d.Settings = append(d.Settings, Setting{
			Name: "authority", Value: rewritten(e.request.Authority, e.route.RewriteAuthority(e.edited(c), c), "weighted_clusters.clusters.host_rewrite_literal"),
			Ignored: e.implementation.about(dialect.HostRewrites), At: d.At,
		})
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
	rpc := e.rpc
	if h := e.route.HeadersFor(c); h != nil {
		rpc.Context = headeredit.Outgoing(rpc.Context, h.Request)
	}
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
	d.Settings = e.headers(&xdsresource.HeaderMutations{Request: m.Headers}, nil)
	return d
}

// timeout returns the bound on the duration of RPCs (gRFC A31), if something sets one.
func (e routeExplainer) timeout() []Setting {
	switch {
	case e.route.MaxStreamDuration != nil:
		return []Setting{{Name: "timeout", Value: describeDuration(*e.route.MaxStreamDuration), Level: levelRoute, At: e.at(provenance.Timeouts, provenance.Matches)}}
	case e.listener.MaxStreamDuration > 0:
		return []Setting{{Name: "timeout", Value: describeDuration(e.listener.MaxStreamDuration), Level: levelListener}}
	default:
		return nil
	}
}

func (e routeExplainer) retry() []Setting {
	p := e.route.Retry
	if p == nil {
		return nil
	}
	var on []string
	for c := codes.OK; c <= codes.Unauthenticated; c++ {
		if p.Codes.Has(c) {
			on = append(on, codeName(c))
		}
	}
	value := fmt.Sprintf("on %s, %d attempts, after %v to %v", strings.Join(on, ", "), p.MaxAttempts, p.BaseBackoff, p.MaxBackoff)
	if p.Hedges {
		value += fmt.Sprintf(", hedged after %v", cmp.Or(p.PerTryTimeout, p.PerTryIdleTimeout))
	}
	s := Setting{Name: "retry", Value: value, Level: levelVirtualHost}
	if e.rawRoute().GetRoute().GetRetryPolicy() != nil {
		s.Level, s.At = levelRoute, e.at(provenance.Retry, provenance.Timeouts, provenance.Filters)
	}
	return []Setting{s}
}

// hashPolicies describes the parts of the hash of an RPC: what is hashed, and what the RPC has of it or why it adds nothing.
func (e routeExplainer) hashPolicies() (list []Setting) {
	headers := e.rpc.Headers()
	hashed := false
	for i := range e.route.HashPolicies {
		p := &e.route.HashPolicies[i]
		value := ""
		switch p.Kind {
		case xdsresource.HashChannelID:
			value, hashed = "the channel: a random number for each channel", true
		case xdsresource.HashHeader:
			text, present := headers.Get(p.Header)
			if !present {
				value = fmt.Sprintf("header %s: the RPC does not have the header", p.Header)
				break
			}
			if p.Rewrite != nil {
				text = p.Rewrite.Replace(text)
			}
			value, hashed = fmt.Sprintf("header %s: %s", p.Header, quote(text)), true
		default:
			value = "something that gRPC does not know: gRPC ignores it"
		}
		if p.Terminal {
			value += " (terminal)"
		}
		list = append(list, Setting{Name: "hash", Value: value})
		if p.Terminal && hashed {
			break // Those behind it do not count.
		}
	}
	return list
}

// rewritten describes a change by a field.
func rewritten(from, to, by string) string {
	return fmt.Sprintf("%s → %s (%s)", quote(from), quote(to), by)
}

func (e routeExplainer) pathRewrite(a *Action) []Setting {
	w := e.route.Rewrite
	if w == nil || w.Prefix == "" && w.Regex == nil {
		return nil
	}
	by := "prefix_rewrite"
	if w.Regex != nil {
		by = "regex_rewrite"
	}
	to, ok := e.route.RewritePath(e.request.Method)
	s := Setting{Name: "path", Value: rewritten(e.request.Method, to, by), Ignored: e.implementation.about(dialect.PathRewrites), At: e.at(provenance.Filters)}
	if !ok {
		s.Value += ": the result is not a path; RPCs fail with UNAVAILABLE"
		if s.Ignored == "" {
			a.badPath = fmt.Sprintf("%s turns the path into %q, which is not a path", by, to)
		}
	}
	return []Setting{s}
}

func (e routeExplainer) authorityRewrite() []Setting {
	from, to, by, w := e.request.Authority, "", "", e.route.Rewrite
	switch host := e.rawRoute().GetRoute().GetHostRewriteSpecifier().(type) {
	case *routepb.RouteAction_HostRewriteLiteral:
		by, to = "host_rewrite_literal", host.HostRewriteLiteral
	case *routepb.RouteAction_HostRewriteHeader:
		by = "host_rewrite_header"
		if w != nil && w.AuthorityHeader != "" {
			to = e.route.RewriteAuthority(e.edited(nil), new(xdsresource.WeightedCluster))
		} else {
			to = e.rpc.FirstHeader(strings.ToLower(host.HostRewriteHeader))
		}
		to = cmp.Or(to, from)
	case *routepb.RouteAction_AutoHostRewrite:
		by = "auto_host_rewrite"
		if !host.AutoHostRewrite.GetValue() {
			return nil
		}
	default:
		return nil
	}
	s := Setting{Name: "authority", Value: rewritten(from, to, by), At: e.at(provenance.Filters)}
	if to == "" {
		s.Value = fmt.Sprintf("%s → the endpoint's hostname (%s)", quote(from), by)
	}
	switch {
	case e.implementation.IsGRPC() && by != "auto_host_rewrite":
		s.Ignored = e.implementation.about(dialect.HostRewrites)
	case w == nil || w.Authority == "" && w.AuthorityHeader == "" && !w.AutoHost:
		s.Ignored = "it needs trusted_xds_server for the management server in the bootstrap, which a dump does not tell (gRFC A81)"
	}
	return []Setting{s}
}

// codeName returns the name of a code as gRFCs write it.
func codeName(c codes.Code) string {
	if c > codes.Unauthenticated {
		return fmt.Sprintf("code %d", c)
	}
	return outcomes.CodeName(int(c))
}
