package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/dialect"
	"github.com/dynxds/dynxds/internal/headeredit"
	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/outcomes"
	"github.com/dynxds/dynxds/internal/provenance"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/mesh/internal/styled"
)

// Two of the kinds of Action.
const (
	kindForward    = "forward"
	kindUnroutable = "unroutable"
)

// The levels of configuration.
const (
	levelListener    = "Listener"
	levelVirtualHost = "virtual host"
	levelRoute       = "route"
	levelWeighted    = "weighted cluster"
)

// routeExplainer explains one route that RPCs take: it makes the Action, and the endings of the RPCs.
type routeExplainer struct {
	*explainer
	*Action
	route *xdsresource.Route
	raw   *routepb.Route
	share float64 // of all RPCs
	// badPath says how a rewrite of the path makes RPCs fail, or is empty.
	badPath string
	// ended are the RPCs that filters end, and passed those that they let pass.
	ended, passed []ending
}

// placeOf returns where a part of a message was written.
func placeOf(m interface{ GetMetadata() *corepb.Metadata }, parts ...string) string {
	return provenance.At(m.GetMetadata(), append(parts, provenance.Service)...)
}

func (e *routeExplainer) at(parts ...string) string { return placeOf(e.raw, parts...) }

func (e *routeExplainer) set(s Setting) { e.Settings = append(e.Settings, s) }

// describe describes what happens to the RPCs.
func (e *routeExplainer) describe() {
	e.Filters = e.filters(nil, nil)
	if d := e.route.MaxStreamDuration; d != nil { // gRFC A31
		e.set(Setting{Name: "timeout", Value: describeDuration(*d), Level: levelRoute, At: e.at(provenance.Timeouts, provenance.Matches)})
	} else if d := e.listener.MaxStreamDuration; d > 0 {
		e.set(Setting{Name: "timeout", Value: describeDuration(d), Level: levelListener})
	}
	switch action := e.route.Action.(type) {
	case *xdsresource.DirectResponse:
		e.end("direct_response", codeName(action.Code), action.Message())
	case *xdsresource.Redirect:
		e.end("redirect", codeName(action.Code), "redirected to "+action.Location(&e.route.Match, &e.rpc))
	case *xdsresource.Unroutable:
		e.end(kindUnroutable, unavailable, action.Reason)
	case *xdsresource.Forward:
		e.forward(action)
	}
	e.Settings = append(e.Settings, e.headers(e.route.Headers, e.at(provenance.Filters))...)
}

// end is for RPCs that are not forwarded.
func (e *routeExplainer) end(kind, code, message string) {
	if e.implementation.IsGRPC() {
		code, message = unavailable, e.implementation.name+" does not carry out the action "+kind
	}
	e.Kind, e.Code, e.Message = kind, code, message
	end := ending{share: 100, code: code, text: e.status()}
	if kind != kindUnroutable { // These do not reach the filters.
		end.share = e.pass(e.Filters, 100)
	}
	if end.share > 0 {
		e.passed = append(e.passed, end)
	}
}

// status returns the status of RPCs that are not forwarded.
func (a *Action) status() string { return a.Code + styled.With(": %s", a.Message) }

// forward is for RPCs that go to a cluster.
func (e *routeExplainer) forward(f *xdsresource.Forward) {
	e.Kind = kindForward
	e.retry()
	e.hashPolicies()
	e.pathRewrite()
	e.authorityRewrite()
	var unused []Destination
	var overrides []map[string]*anypb.Any // of filters, as messages, for each cluster of f: these are the weighted ones
	for _, c := range e.raw.GetRoute().GetWeightedClusters().GetClusters() {
		if c.GetWeight().GetValue() > 0 {
			overrides = append(overrides, c.GetTypedPerFilterConfig())
		} else {
			unused = append(unused, Destination{Cluster: c.GetName(), Header: c.GetClusterHeader(), At: e.at(provenance.BackendRefs)})
		}
	}
	overrides = append(overrides, make([]map[string]*anypb.Any, len(f.Clusters))...) // none if there is one cluster
	total := f.TotalWeight()
	for i := range f.Clusters {
		e.destination(&f.Clusters[i], overrides[i], total)
	}
	e.Destinations = append(e.Destinations, unused...)
	for i := range e.route.Mirrors {
		e.mirror(&e.route.Mirrors[i])
	}
}

// destination adds a cluster, whose overrides of filters are raw as messages.
func (e *routeExplainer) destination(c *xdsresource.WeightedCluster, raw map[string]*anypb.Any, total uint32) {
	d := Destination{
		Cluster: c.Cluster(&e.rpc), Header: c.Header, Weight: c.Weight,
		Percent: percent(100 * float64(c.Weight) / float64(total)),
		At:      e.at(provenance.BackendRefs),
	}
	filters := e.Filters
	if len(c.Overrides) > 0 {
		d.Filters = e.filters(c.Overrides, raw)
		filters = d.Filters
	}
	end := ending{share: d.Percent, code: unavailable}
	if d.Error = e.misnamed(c.Header, d.Cluster); d.Error != "" { // Nor do these reach the filters.
		end.text = unavailable + ": " + d.Error
	} else {
		end.share = e.pass(filters, d.Percent)
		e.useCluster(d.Cluster).Share += e.share * end.share / 100
		if end.text = unavailable + ": " + e.badPath; e.badPath == "" {
			end = ending{share: end.share, cluster: d.Cluster}
		}
	}
	if end.share > 0 || d.Percent == 0 {
		e.passed = append(e.passed, end)
	}
	if c.Headers != nil {
		d.Settings = e.headers(c.Headers, "")
	}
	if c.Authority != "" && (e.route.Rewrite == nil || e.route.Rewrite.Authority == "") {
		d.Settings = append(d.Settings, Setting{
			Name: "authority", Value: rewritten(e.request.Authority, e.route.RewriteAuthority(e.edited(c), c), "weighted_clusters.clusters.host_rewrite_literal"),
			Ignored: e.implementation.about(dialect.HostRewrites), At: d.At,
		})
	}
	e.Destinations = append(e.Destinations, d)
}

// pass adds the endings of the RPCs that filters end, out of a share, and returns the share that they let pass.
func (e *routeExplainer) pass(filters []Filter, share float64) float64 {
	for i := range filters {
		f := &filters[i]
		if f.Ends == nil || share == 0 {
			continue
		}
		end := ending{share: share * (f.Ends.Percent / 100), code: f.Ends.Code, text: fmt.Sprintf("%s by filter %q", f.Ends.Code, f.Name)}
		share -= end.share
		if same := slices.IndexFunc(e.ended, func(other ending) bool { return other.text == end.text }); same >= 0 {
			e.ended[same].share += end.share
		} else {
			e.ended = append(e.ended, end)
		}
	}
	return share
}

// misnamed returns why the cluster that a header names cannot be used, or "". header is empty if the
// route names the cluster.
func (e *routeExplainer) misnamed(header, cluster string) string {
	switch {
	case header == "", e.selectable[cluster]:
		return ""
	case cluster == "":
		return fmt.Sprintf("the RPC does not have the header %q, which names the cluster", header)
	default:
		return fmt.Sprintf("header %q names cluster %q, which no route of the virtual host mentions", header, cluster)
	}
}

// edited returns the RPC after the edits of its headers for a cluster of the route, nil for any: as the
// route's mirrors and rewrites of the authority see it.
func (e *routeExplainer) edited(c *xdsresource.WeightedCluster) *matching.RPC {
	if f, ok := e.route.Action.(*xdsresource.Forward); ok && c == nil && len(f.Clusters) == 1 {
		c = &f.Clusters[0]
	}
	rpc := e.rpc
	if h := e.route.HeadersFor(c); h != nil {
		rpc.Context = headeredit.Outgoing(rpc.Context, h.Request)
	}
	return &rpc
}

func (e *routeExplainer) mirror(m *xdsresource.Mirror) {
	d := Destination{
		Cluster: m.Target(e.edited(nil)), Header: m.Header, Percent: 100,
		Ignored: e.implementation.about(dialect.Mirrors), At: e.at(provenance.Filters),
	}
	if m.FractionPerMillion != nil {
		d.Percent = percent(100 * float64(*m.FractionPerMillion) / matching.Million)
	}
	if d.Error = e.misnamed(m.Header, d.Cluster); d.Error == "" && d.Ignored == "" {
		e.useCluster(d.Cluster).Mirror = true
	}
	d.Settings = e.headers(&xdsresource.HeaderMutations{Request: m.Headers}, "")
	e.Mirrors = append(e.Mirrors, d)
}

func (e *routeExplainer) retry() {
	p := e.route.Retry
	if p == nil {
		return
	}
	var on []string
	for c := codes.OK; c <= codes.Unauthenticated; c++ {
		if p.Codes.Has(c) {
			on = append(on, codeName(c))
		}
	}
	for _, other := range []struct {
		on   bool
		name string
	}{{p.ConnectFailure, "connect-failure"}, {p.NoResponse, "reset"}, {len(p.RetriableHeaders) > 0, "retriable-headers"}} {
		if other.on {
			on = append(on, other.name)
		}
	}
	value := fmt.Sprintf("on %s, %d attempts, after %v to %v", strings.Join(on, ", "), p.MaxAttempts, p.BaseBackoff, p.MaxBackoff)
	if p.Hedges {
		value += fmt.Sprintf(", hedged after %v", cmp.Or(p.PerTryTimeout, p.PerTryIdleTimeout))
	}
	s := Setting{Name: "retry", Value: value, Level: levelVirtualHost}
	if e.raw.GetRoute().GetRetryPolicy() != nil {
		s.Level, s.At = levelRoute, e.at(provenance.Retry, provenance.Timeouts, provenance.Filters)
	}
	if p.MaxAttempts > 1 {
		e.set(s)
	}
	if p.LimitsTries() && !p.Hedges {
		s.Name, s.Value = "attempt", fmt.Sprintf("ends after %v without a response", cmp.Or(p.PerTryTimeout, p.PerTryIdleTimeout))
		s.Ignored = e.implementation.about(dialect.TryTimeouts)
		e.set(s)
	}
}

// hashPolicies describes the parts of the hash of an RPC: what is hashed, and what the RPC has of it or why it adds nothing.
func (e *routeExplainer) hashPolicies() {
	headers := e.rpc.Headers()
	hashed := false
	for i := range e.route.HashPolicies {
		p := &e.route.HashPolicies[i]
		value := ""
		switch text, present := headers.Get(p.Header); {
		case p.Header == "":
			value, hashed = "the channel: a random number for each channel", true
		case !present:
			value = fmt.Sprintf("header %s: the RPC does not have the header", p.Header)
		default:
			if p.Rewrite != nil {
				text = p.Rewrite.Replace(text)
			}
			value, hashed = fmt.Sprintf("header %s: %s", p.Header, quote(text)), true
		}
		if p.Terminal {
			value += " (terminal)"
		}
		e.set(Setting{Name: "hash", Value: value})
		if p.Terminal && hashed {
			break // Those behind it do not count.
		}
	}
}

// rewritten describes a change by a field.
func rewritten(from, to, by string) string {
	return fmt.Sprintf("%s → %s (%s)", quote(from), quote(to), by)
}

func (e *routeExplainer) pathRewrite() {
	w := e.route.Rewrite
	if w == nil || w.Prefix == "" && w.Regex == nil {
		return
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
			e.badPath = fmt.Sprintf("%s turns the path into %q, which is not a path", by, to)
		}
	}
	e.set(s)
}

func (e *routeExplainer) authorityRewrite() {
	from, to, by, w := e.request.Authority, "", "", e.route.Rewrite
	switch host := e.raw.GetRoute().GetHostRewriteSpecifier().(type) {
	case *routepb.RouteAction_HostRewriteLiteral:
		by, to = "host_rewrite_literal", host.HostRewriteLiteral
	case *routepb.RouteAction_HostRewriteHeader:
		by, to = "host_rewrite_header", e.rpc.FirstHeader(strings.ToLower(host.HostRewriteHeader))
		if w != nil && w.AuthorityHeader != "" {
			to = e.route.RewriteAuthority(e.edited(nil), new(xdsresource.WeightedCluster))
		}
		to = cmp.Or(to, from)
	case *routepb.RouteAction_AutoHostRewrite:
		if by = "auto_host_rewrite"; !host.AutoHostRewrite.GetValue() {
			return
		}
	default:
		return
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
	e.set(s)
}

// codeName returns the name of a code as gRFCs write it.
func codeName(c codes.Code) string {
	if c > codes.Unauthenticated {
		return fmt.Sprintf("code %d", c)
	}
	return outcomes.CodeName(int(c))
}
