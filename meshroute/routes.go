package meshroute

import (
	"strings"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// routeTable translates merged rules to routes.
type routeTable struct {
	naming  naming
	service string
}

func (t routeTable) configuration(m Merged) *routepb.RouteConfiguration {
	host := &routepb.VirtualHost{Name: t.service, Domains: []string{"*"}}
	for _, r := range m.routes() {
		if !r.unreachable {
			host.Routes = append(host.Routes, t.routes(r)...)
		}
	}
	return &routepb.RouteConfiguration{
		Name:         t.naming.resource(routeConfigurationName, t.service),
		VirtualHosts: []*routepb.VirtualHost{host},
	}
}

// span is how much of a path a route's match is about, which decides how a path is
// rewritten.
type span int

const (
	// wholePath: an exact path or a regular expression.
	wholePath span = iota
	// upToSegment: a prefix and the slash after it.
	upToSegment
	// anyPath: the prefix "/".
	anyPath
)

// routes returns the routes for one entry of a rule's matches. A prefix that ends
// at a segment becomes two: "/a" alone, and what starts with "/a/". Other gRPC
// clients know no path_separated_prefix, and so each can be rewritten with the
// slashes that it needs.
func (t routeTable) routes(r route) []*routepb.Route {
	value := r.match.Path.Value
	switch {
	case r.match.Path.Type == Exact:
		return []*routepb.Route{t.route(r, wholePath, exactPath(value))}
	case r.match.Path.Type == RegularExpression:
		return []*routepb.Route{t.route(r, wholePath, regexPath(value))}
	case value == "/":
		return []*routepb.Route{t.route(r, anyPath, prefixPath("/"))}
	default:
		return []*routepb.Route{
			t.route(r, wholePath, exactPath(value)),
			t.route(r, upToSegment, prefixPath(value+"/")),
		}
	}
}

// route returns a route with the path in its match.
func (t routeTable) route(r route, s span, match *routepb.RouteMatch) *routepb.Route {
	r.match.conditions(match)
	to := &routepb.Route{Match: match}
	t.action(to, r.rule, s)
	return to
}

func exactPath(path string) *routepb.RouteMatch {
	return &routepb.RouteMatch{PathSpecifier: &routepb.RouteMatch_Path{Path: path}}
}

func prefixPath(prefix string) *routepb.RouteMatch {
	return &routepb.RouteMatch{PathSpecifier: &routepb.RouteMatch_Prefix{Prefix: prefix}}
}

func regexPath(pattern string) *routepb.RouteMatch {
	return &routepb.RouteMatch{PathSpecifier: &routepb.RouteMatch_SafeRegex{SafeRegex: regex(pattern)}}
}

func regex(pattern string) *matcherpb.RegexMatcher { return &matcherpb.RegexMatcher{Regex: pattern} }

// conditions adds all but the path.
func (m *Match) conditions(to *routepb.RouteMatch) {
	switch len(m.Methods) {
	case 0:
	case 1:
		to.Headers = append(to.Headers, stringHeader(":method", exactText(m.Methods[0])))
	default:
		to.Headers = append(to.Headers, stringHeader(":method", regexText(strings.Join(m.Methods, "|"))))
	}
	for _, h := range m.Headers {
		to.Headers = append(to.Headers, h.header())
	}
	for _, q := range m.Query {
		to.QueryParameters = append(to.QueryParameters, &routepb.QueryParameterMatcher{
			Name:                         q.Name,
			QueryParameterMatchSpecifier: &routepb.QueryParameterMatcher_StringMatch{StringMatch: q.text()},
		})
	}
}

func (v ValueMatch) header() *routepb.HeaderMatcher {
	if v.Type == Present || v.Type == Absent {
		return &routepb.HeaderMatcher{
			Name:                 v.Name,
			HeaderMatchSpecifier: &routepb.HeaderMatcher_PresentMatch{PresentMatch: true},
			InvertMatch:          v.Type == Absent,
		}
	}
	return stringHeader(v.Name, v.text())
}

func stringHeader(name string, m *matcherpb.StringMatcher) *routepb.HeaderMatcher {
	return &routepb.HeaderMatcher{Name: name, HeaderMatchSpecifier: &routepb.HeaderMatcher_StringMatch{StringMatch: m}}
}

func (v ValueMatch) text() *matcherpb.StringMatcher {
	switch v.Type {
	case Prefix:
		return &matcherpb.StringMatcher{MatchPattern: &matcherpb.StringMatcher_Prefix{Prefix: v.Value}}
	case RegularExpression:
		return regexText(v.Value)
	default:
		return exactText(v.Value)
	}
}

func exactText(value string) *matcherpb.StringMatcher {
	return &matcherpb.StringMatcher{MatchPattern: &matcherpb.StringMatcher_Exact{Exact: value}}
}

func regexText(pattern string) *matcherpb.StringMatcher {
	return &matcherpb.StringMatcher{MatchPattern: &matcherpb.StringMatcher_SafeRegex{SafeRegex: regex(pattern)}}
}

// action sets what happens to requests that match.
func (t routeTable) action(to *routepb.Route, r *MergedRule, s span) {
	forward := &routepb.RouteAction{}
	t.destination(forward, r)
	to.Action = &routepb.Route_Route{Route: forward}
	if r == nil {
		return
	}
	for i := range r.Filters {
		f := &r.Filters[i]
		switch f.Type {
		case RequestHeaderModifier:
			to.RequestHeadersToAdd, to.RequestHeadersToRemove = f.Headers.options(), f.Headers.Remove
		case ResponseHeaderModifier:
			to.ResponseHeadersToAdd, to.ResponseHeadersToRemove = f.Headers.options(), f.Headers.Remove
		case RequestMirror:
			forward.RequestMirrorPolicies = append(forward.RequestMirrorPolicies,
				&routepb.RouteAction_RequestMirrorPolicy{Cluster: t.cluster(f.Mirror)})
		case RequestRedirect:
			to.Action = &routepb.Route_Redirect{Redirect: f.Redirect.action(s)}
		case URLRewrite:
			f.Rewrite.rewrite(forward, s)
		}
	}
}

func (t routeTable) cluster(ref *BackendRef) string {
	return t.naming.resource(clusterName, ref.subset().id)
}

// destination sets the cluster or the clusters. r may be nil.
func (t routeTable) destination(forward *routepb.RouteAction, r *MergedRule) {
	switch {
	case r == nil || len(r.BackendRefs) == 0:
		self := BackendRef{Name: t.service}
		forward.ClusterSpecifier = &routepb.RouteAction_Cluster{Cluster: t.cluster(&self)}
	case len(r.BackendRefs) == 1:
		forward.ClusterSpecifier = &routepb.RouteAction_Cluster{Cluster: t.cluster(&r.BackendRefs[0])}
	default:
		weighted := &routepb.WeightedCluster{}
		for i := range r.BackendRefs {
			ref := &r.BackendRefs[i]
			weighted.Clusters = append(weighted.Clusters, &routepb.WeightedCluster_ClusterWeight{
				Name: t.cluster(ref), Weight: wrapperspb.UInt32(ref.Weight),
			})
		}
		forward.ClusterSpecifier = &routepb.RouteAction_WeightedClusters{WeightedClusters: weighted}
	}
}

func (m *HeaderModifier) options() []*corepb.HeaderValueOption {
	var options []*corepb.HeaderValueOption
	add := func(headers []Header, action corepb.HeaderValueOption_HeaderAppendAction) {
		for _, h := range headers {
			options = append(options, &corepb.HeaderValueOption{
				// Envoy takes what stands between percent signs for a command.
				Header:         &corepb.HeaderValue{Key: h.Name, Value: strings.ReplaceAll(h.Value, "%", "%%")},
				AppendAction:   action,
				KeepEmptyValue: h.Value == "",
			})
		}
	}
	add(m.Set, corepb.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD)
	add(m.Add, corepb.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD)
	return options
}
