package meshroute

import (
	"slices"
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
	// grpc says that the routes are for clients that know only those of gRFC A28.
	grpc bool
}

func (t routeTable) configuration(m Merged) *routepb.RouteConfiguration {
	host := &routepb.VirtualHost{Name: t.service, Domains: []string{"*"}}
	for _, r := range m.routes() {
		possible := true
		if t.grpc {
			r.match, possible = r.match.forGRPC()
		}
		if possible && !r.unreachable {
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

// forGRPC returns the match without conditions that RPCs meet anyhow, and false if no
// RPC meets it: they are POST, and have no query. Clients that know only the routes of
// gRFC A28 take :method for a header that is not there, and some of them a rule with
// queryParams for one without.
func (m *Match) forGRPC() (*Match, bool) {
	if len(m.Query) > 0 || len(m.Methods) > 0 && !slices.Contains(m.Methods, "POST") {
		return m, false
	}
	simple := *m
	simple.Methods = nil
	return &simple, true
}

// conditions adds all but the path. Conditions on headers are in the oldest form that
// says the same: string_match is not known to every client.
func (m *Match) conditions(to *routepb.RouteMatch) {
	switch len(m.Methods) {
	case 0:
	case 1:
		to.Headers = append(to.Headers, ValueMatch{":method", Exact, m.Methods[0]}.header())
	default:
		to.Headers = append(to.Headers, ValueMatch{":method", RegularExpression, strings.Join(m.Methods, "|")}.header())
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
	to := &routepb.HeaderMatcher{Name: v.Name}
	switch v.Type {
	case Present, Absent:
		to.HeaderMatchSpecifier = &routepb.HeaderMatcher_PresentMatch{PresentMatch: true}
		to.InvertMatch = v.Type == Absent
	case Prefix:
		//lint:ignore SA1019 the oldest form
		to.HeaderMatchSpecifier = &routepb.HeaderMatcher_PrefixMatch{PrefixMatch: v.Value}
	case RegularExpression:
		//lint:ignore SA1019 the oldest form
		to.HeaderMatchSpecifier = &routepb.HeaderMatcher_SafeRegexMatch{SafeRegexMatch: regex(v.Value)}
	default:
		//lint:ignore SA1019 the oldest form
		to.HeaderMatchSpecifier = &routepb.HeaderMatcher_ExactMatch{ExactMatch: v.Value}
	}
	return to
}

// text is for query parameters, which have no older form, and of which Exact and
// RegularExpression are the types.
func (v ValueMatch) text() *matcherpb.StringMatcher {
	if v.Type == RegularExpression {
		return &matcherpb.StringMatcher{MatchPattern: &matcherpb.StringMatcher_SafeRegex{SafeRegex: regex(v.Value)}}
	}
	return &matcherpb.StringMatcher{MatchPattern: &matcherpb.StringMatcher_Exact{Exact: v.Value}}
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
			if t.grpc {
				// Some clients reject all routes if one of them redirects.
				to.Action = t.nowhere()
			} else {
				to.Action = &routepb.Route_Redirect{Redirect: f.Redirect.action(s)}
			}
		case URLRewrite:
			f.Rewrite.rewrite(forward, s)
		}
	}
}

// nowhere is for requests that a client cannot do as a rule says: they fail with
// UNAVAILABLE. It is a Cluster without endpoints, as not every client takes an action
// other than route.
func (t routeTable) nowhere() *routepb.Route_Route {
	return &routepb.Route_Route{Route: &routepb.RouteAction{
		ClusterSpecifier: &routepb.RouteAction_Cluster{Cluster: t.naming.resource(clusterName, deadID(t.service))},
	}}
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
