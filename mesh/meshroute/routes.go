package meshroute

import (
	"net/http"
	"slices"
	"strings"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
)

// routeTable translates merged rules to routes.
type routeTable struct {
	*compiler
	// grpc is set for clients that know only the routes of gRFC A28.
	grpc bool
}

// configuration returns the routes, and what each is made of.
func (t routeTable) configuration(m Merged) (*routepb.RouteConfiguration, []meshpolicy.Route) {
	host := &routepb.VirtualHost{Name: t.service, Domains: []string{"*"}}
	var made []meshpolicy.Route
	for _, r := range m.Routes() {
		possible := true
		if t.grpc {
			r.Match, possible = forGRPC(r.Match)
		}
		if !possible || r.Unreachable {
			continue
		}
		for _, route := range t.routes(r) {
			if r.Rule == nil && m.Complete {
				t.end(route, http.StatusNotFound, "no rule of the routes to "+t.service+" applies") // UNIMPLEMENTED in gRPC
			}
			host.Routes, made = append(host.Routes, route), append(made, r)
		}
	}
	return &routepb.RouteConfiguration{
		Name:         t.mesh.naming.resource(RouteConfigurationType, t.service),
		VirtualHosts: []*routepb.VirtualHost{host},
	}, made
}

// span is the part of a path that a route matches, which decides how the path is rewritten.
type span int

const (
	// wholePath: an exact path or a regular expression.
	wholePath span = iota
	// upToSegment: a prefix and the slash after it.
	upToSegment
	// anyPath: the prefix "/", or no condition.
	anyPath
)

// routes returns the routes for one match. A prefix becomes two: the path "/a", and the prefix "/a/".
// Other gRPC clients do not support path_separated_prefix, and each route can be rewritten with the
// slashes that it needs.
func (t routeTable) routes(r meshpolicy.Route) []*routepb.Route {
	value := r.Match.Path.Value
	switch {
	case r.Match.Path.IsAny():
		return []*routepb.Route{t.route(r, anyPath, prefixPath("/"))}
	case r.Match.Path.Type == meshpolicy.Exact:
		return []*routepb.Route{t.route(r, wholePath, exactPath(value))}
	case r.Match.Path.Type == meshpolicy.RegularExpression:
		return []*routepb.Route{t.route(r, wholePath, &routepb.RouteMatch{PathSpecifier: &routepb.RouteMatch_SafeRegex{SafeRegex: regex(value)}})}
	default:
		return []*routepb.Route{
			t.route(r, wholePath, exactPath(value)),
			t.route(r, upToSegment, prefixPath(value+"/")),
		}
	}
}

// route returns a route with the path in its match.
func (t routeTable) route(r meshpolicy.Route, s span, match *routepb.RouteMatch) *routepb.Route {
	addConditions(match, r.Match)
	to := &routepb.Route{Match: match}
	t.action(to, r.Rule, s)
	return to
}

func exactPath(path string) *routepb.RouteMatch {
	return &routepb.RouteMatch{PathSpecifier: &routepb.RouteMatch_Path{Path: path}}
}

func prefixPath(prefix string) *routepb.RouteMatch {
	return &routepb.RouteMatch{PathSpecifier: &routepb.RouteMatch_Prefix{Prefix: prefix}}
}

func regex(pattern string) *matcherpb.RegexMatcher { return &matcherpb.RegexMatcher{Regex: pattern} }

// forGRPC returns the match without conditions that all RPCs satisfy, and false if no RPC satisfies it:
// RPCs are POST, and have no query. Clients that know only the routes of gRFC A28 treat :method as an
// absent header, and some ignore queryParams.
func forGRPC(m *meshpolicy.Match) (*meshpolicy.Match, bool) {
	if len(m.Query) > 0 || len(m.Methods) > 0 && !slices.Contains(m.Methods, "POST") {
		return m, false
	}
	simple := *m
	simple.Methods = nil
	return &simple, true
}

// addConditions adds the conditions other than the path. Those on headers have the oldest equivalent
// form, as not every client supports string_match.
func addConditions(to *routepb.RouteMatch, m *meshpolicy.Match) {
	switch len(m.Methods) {
	case 0:
	case 1:
		to.Headers = append(to.Headers, headerMatcher(meshpolicy.ValueMatch{Name: ":method", Value: m.Methods[0]}))
	default:
		to.Headers = append(to.Headers, headerMatcher(meshpolicy.ValueMatch{Name: ":method", Type: meshpolicy.RegularExpression, Value: strings.Join(m.Methods, "|")}))
	}
	for _, h := range m.Headers {
		to.Headers = append(to.Headers, headerMatcher(h))
	}
	for _, q := range m.Query {
		to.QueryParameters = append(to.QueryParameters, &routepb.QueryParameterMatcher{
			Name:                         q.Name,
			QueryParameterMatchSpecifier: &routepb.QueryParameterMatcher_StringMatch{StringMatch: stringMatcher(q)},
		})
	}
}

func headerMatcher(v meshpolicy.ValueMatch) *routepb.HeaderMatcher {
	to := &routepb.HeaderMatcher{Name: v.Name}
	switch v.Type {
	case meshpolicy.Present, meshpolicy.Absent:
		to.HeaderMatchSpecifier = &routepb.HeaderMatcher_PresentMatch{PresentMatch: true}
		to.InvertMatch = v.Type == meshpolicy.Absent
	case meshpolicy.Prefix:
		//lint:ignore SA1019 the oldest form
		to.HeaderMatchSpecifier = &routepb.HeaderMatcher_PrefixMatch{PrefixMatch: v.Value}
	case meshpolicy.RegularExpression:
		//lint:ignore SA1019 the oldest form
		to.HeaderMatchSpecifier = &routepb.HeaderMatcher_SafeRegexMatch{SafeRegexMatch: regex(v.Value)}
	default:
		//lint:ignore SA1019 the oldest form
		to.HeaderMatchSpecifier = &routepb.HeaderMatcher_ExactMatch{ExactMatch: v.Value}
	}
	return to
}

// stringMatcher is for query parameters, which have no older form, and whose types are Exact and
// RegularExpression.
func stringMatcher(v meshpolicy.ValueMatch) *matcherpb.StringMatcher {
	if v.Type == meshpolicy.RegularExpression {
		return &matcherpb.StringMatcher{MatchPattern: &matcherpb.StringMatcher_SafeRegex{SafeRegex: regex(v.Value)}}
	}
	return &matcherpb.StringMatcher{MatchPattern: &matcherpb.StringMatcher_Exact{Exact: v.Value}}
}

// action sets the action for matching requests.
func (t routeTable) action(to *routepb.Route, r *meshpolicy.MergedRule, s span) {
	forward := &routepb.RouteAction{}
	proto.Merge(forward, t.own.service.Route)
	t.destination(forward, r)
	to.Action = &routepb.Route_Route{Route: forward}
	if r == nil {
		return
	}
	setLimits(forward, &r.Rule)
	t.setSession(to, r.Session)
	for i := range r.Filters {
		f := &r.Filters[i]
		switch f.Type {
		case meshpolicy.RequestHeaderModifier:
			to.RequestHeadersToAdd, to.RequestHeadersToRemove = headerOptions(f.Headers), f.Headers.Remove
		case meshpolicy.ResponseHeaderModifier:
			to.ResponseHeadersToAdd, to.ResponseHeadersToRemove = headerOptions(f.Headers), f.Headers.Remove
		case meshpolicy.RequestMirror:
			// A mirror that does not exist must not be in the way of the request itself.
			if t.mesh.service(f.Mirror.Name) != nil {
				forward.RequestMirrorPolicies = append(forward.RequestMirrorPolicies, &routepb.RouteAction_RequestMirrorPolicy{
					Cluster: t.cluster(f.Mirror), RuntimeFraction: fraction(f.MirrorPerMillion),
				})
			}
		case meshpolicy.RequestRedirect:
			if t.grpc {
				// Some clients reject all routes if one of them redirects.
				to.Action = t.nowhere()
			} else {
				to.Action = &routepb.Route_Redirect{Redirect: redirectAction(f.Redirect, s)}
			}
		case meshpolicy.URLRewrite:
			setRewrite(forward, f.Rewrite, s)
		}
	}
	text := "no backend of the route has a weight above 0"
	if r.Problem != "" {
		text = "the rule of the route is not supported: " + r.Problem
	} else if r.NoBackends {
		text = "the rule of the route has no backendRefs"
	}
	if r.Nowhere() && !r.Redirects() {
		t.end(to, http.StatusServiceUnavailable, text)
	}
}

// end sets the action for requests that go nowhere.
func (t routeTable) end(to *routepb.Route, status uint32, text string) {
	if t.grpc {
		to.Action = t.nowhere()
		return
	}
	to.Action = &routepb.Route_DirectResponse{DirectResponse: &routepb.DirectResponseAction{
		Status: status, Body: &corepb.DataSource{Specifier: &corepb.DataSource_InlineString{InlineString: text}},
	}}
}

// nowhere is for rules that a client does not support: RPCs fail with UNAVAILABLE, as the Cluster has
// no endpoints. Some clients support no action other than route.
func (t routeTable) nowhere() *routepb.Route_Route {
	t.leadsNowhere = true
	return &routepb.Route_Route{Route: &routepb.RouteAction{
		ClusterSpecifier: &routepb.RouteAction_Cluster{Cluster: t.mesh.naming.resource(ClusterType, deadID(t.service))},
	}}
}

func (t routeTable) cluster(ref *meshpolicy.BackendRef) string {
	id := ref.Subset()
	if t.grpc && t.mesh.service(ref.Name) == nil {
		id = missingID(id)
	}
	return t.mesh.naming.resource(ClusterType, id)
}

// destination sets the cluster or the clusters. r may be nil.
func (t routeTable) destination(forward *routepb.RouteAction, r *meshpolicy.MergedRule) {
	switch {
	case r == nil || len(r.BackendRefs) == 0:
		self := meshpolicy.BackendRef{Name: t.service}
		forward.ClusterSpecifier = &routepb.RouteAction_Cluster{Cluster: t.cluster(&self)}
	case len(r.BackendRefs) == 1 && r.BackendRefs[0].Filters == nil:
		forward.ClusterSpecifier = &routepb.RouteAction_Cluster{Cluster: t.cluster(&r.BackendRefs[0])}
	default:
		weighted := &routepb.WeightedCluster{}
		for i := range r.BackendRefs {
			ref := &r.BackendRefs[i]
			cluster := &routepb.WeightedCluster_ClusterWeight{Name: t.cluster(ref), Weight: wrapperspb.UInt32(ref.Weight)}
			for j := range ref.Filters {
				f := &ref.Filters[j]
				if f.Type == meshpolicy.RequestHeaderModifier {
					cluster.RequestHeadersToAdd, cluster.RequestHeadersToRemove = headerOptions(f.Headers), f.Headers.Remove
				} else {
					cluster.ResponseHeadersToAdd, cluster.ResponseHeadersToRemove = headerOptions(f.Headers), f.Headers.Remove
				}
			}
			weighted.Clusters = append(weighted.Clusters, cluster)
		}
		forward.ClusterSpecifier = &routepb.RouteAction_WeightedClusters{WeightedClusters: weighted}
	}
}

// fraction returns a share with the smallest denominator, nil for all.
func fraction(perMillion *uint32) *corepb.RuntimeFractionalPercent {
	if perMillion == nil {
		return nil
	}
	f := &typepb.FractionalPercent{Numerator: *perMillion, Denominator: typepb.FractionalPercent_MILLION}
	switch {
	case f.Numerator%1e4 == 0:
		f.Numerator, f.Denominator = f.Numerator/1e4, typepb.FractionalPercent_HUNDRED
	case f.Numerator%100 == 0:
		f.Numerator, f.Denominator = f.Numerator/100, typepb.FractionalPercent_TEN_THOUSAND
	}
	return &corepb.RuntimeFractionalPercent{DefaultValue: f}
}

func headerOptions(m *meshpolicy.HeaderModifier) []*corepb.HeaderValueOption {
	var options []*corepb.HeaderValueOption
	add := func(headers []meshpolicy.Header, action corepb.HeaderValueOption_HeaderAppendAction) {
		for _, h := range headers {
			options = append(options, &corepb.HeaderValueOption{
				// Envoy substitutes commands in percent signs.
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
