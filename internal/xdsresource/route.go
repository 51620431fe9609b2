package xdsresource

import (
	"strings"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/xdsclient"
)

func decodeRouteConfiguration(resource *anypb.Any, o xdsclient.DecodeOptions) (string, any, error) {
	if rc := patchRouteConfiguration(resource, o); rc != nil {
		return rc.Name, rc, nil
	}
	name, value, err := decode(resource, o, typeurl.RouteConfiguration, new(routepb.RouteConfiguration), "name",
		(*routepb.RouteConfiguration).GetName, (*validator).routeConfiguration)
	if rc, ok := value.(*RouteConfiguration); ok {
		rc.raw = resource.GetValue()
	}
	return name, value, err
}

// patchRouteConfiguration decodes a resource with the help of the last one of its name.
// It returns nil if that does not help.
func patchRouteConfiguration(resource *anypb.Any, o xdsclient.DecodeOptions) *RouteConfiguration {
	if o.Last == nil || resource.GetTypeUrl() != typeurl.RouteConfiguration {
		return nil
	}
	last, ok := o.Last(nameOnWire(resource.GetValue())).(*RouteConfiguration)
	if !ok {
		return nil
	}
	return last.patch(newValidator(o), resource.GetValue())
}

func (v *validator) routeConfiguration(pb *routepb.RouteConfiguration) *RouteConfiguration {
	rc := v.routeConfigurationAt(nil, pb)
	rc.Ignored = v.ignored.list()
	rc.regexCost = v.regexes.cost
	return rc
}

// routeConfigurationAt decodes a RouteConfiguration, which is a resource of its
// own (at is nil) or part of a Listener.
func (v *validator) routeConfigurationAt(at *path, pb *routepb.RouteConfiguration) *RouteConfiguration {
	rc := &RouteConfiguration{
		Name:         pb.GetName(),
		VirtualHosts: make([]*VirtualHost, 0, len(pb.GetVirtualHosts())),
	}
	r := v.routesOf(at, pb)
	for i, vh := range pb.GetVirtualHosts() {
		rc.VirtualHosts = append(rc.VirtualHosts, r.virtualHost(at.item("virtual_hosts", i), i, vh))
	}
	if !v.failed() {
		rc.compiled = newDomainTable(rc.VirtualHosts)
	}
	return rc
}

// routesOf decodes what a RouteConfiguration says for all its virtual hosts.
func (v *validator) routesOf(at *path, pb *routepb.RouteConfiguration) *routes {
	r := &routes{
		v:                v,
		plugins:          v.clusterSpecifierPlugins(at, pb.GetClusterSpecifierPlugins()),
		domains:          make(map[string]int),
		mostSpecificWins: pb.GetMostSpecificHeaderMutationsWins(),
		maxBody:          defaultMaxBody,
	}
	if limit := pb.GetMaxDirectResponseBodySizeBytes(); limit != nil {
		r.maxBody = int(limit.GetValue())
	}
	r.all.headers = r.headerMutations(at, pb, nil)
	r.all.mirrors = v.mirrors(at, pb.GetRequestMirrorPolicies(), nil)
	return r
}

// clusterSpecifierPlugins returns the names of the plugins that may be left
// out. This client has no plugins; those that are not optional are faults.
func (v *validator) clusterSpecifierPlugins(at *path, pbs []*routepb.ClusterSpecifierPlugin) map[string]bool {
	optional := make(map[string]bool, len(pbs))
	for i, pb := range pbs {
		name := pb.GetExtension().GetName()
		optional[name] = true
		if !pb.GetIsOptional() {
			v.fault(at.item("cluster_specifier_plugins", i), "plugin %s: this client has no plugin for type %s, and is_optional is not set",
				quote(name), quote(pb.GetExtension().GetTypedConfig().GetTypeUrl()))
		}
	}
	return optional
}

// routes decodes the virtual hosts and routes of one RouteConfiguration.
type routes struct {
	v *validator
	// plugins has the names in cluster_specifier_plugins.
	plugins map[string]bool
	// domains has the index of the virtual host for each domain so far.
	domains map[string]int
	// mostSpecificWins is most_specific_header_mutations_wins.
	mostSpecificWins bool
	// maxBody bounds the body of a DirectResponse.
	maxBody int
	// all holds for all routes, host for those of the current virtual host.
	all, host defaults
}

// defaults are what levels above say for routes that do not say otherwise.
type defaults struct {
	headers *HeaderMutations
	mirrors []Mirror
	retry   *RetryPolicy
}

func (r *routes) virtualHost(at *path, i int, pb *routepb.VirtualHost) *VirtualHost {
	r.checkDomains(at, i, pb.GetDomains())
	vh := &VirtualHost{
		Name:      pb.GetName(),
		Domains:   pb.GetDomains(),
		Routes:    make([]*Route, 0, len(pb.GetRoutes())),
		Overrides: r.v.filterOverrides(at, pb.GetTypedPerFilterConfig()),
	}
	r.enter(at, pb)
	// One allocation for all routes; they live and die together.
	all := make([]Route, len(pb.GetRoutes()))
	for i, route := range pb.GetRoutes() {
		if r.route(at.item("routes", i), route, &all[i]) {
			vh.Routes = append(vh.Routes, &all[i])
		}
	}
	if !r.v.failed() {
		vh.compiled = newRouteTable(vh, clustersOf(vh.Routes))
	}
	return vh
}

// enter decodes what a virtual host says for all its routes.
func (r *routes) enter(at *path, pb *routepb.VirtualHost) {
	r.host = defaults{
		headers: r.headerMutations(at, pb, r.all.headers),
		mirrors: r.v.mirrors(at, pb.GetRequestMirrorPolicies(), r.all.mirrors),
	}
	if retry := pb.GetRetryPolicy(); retry != nil {
		r.host.retry = r.v.retryPolicy(at.field("retry_policy"), retry)
	}
}

func (r *routes) checkDomains(at *path, i int, domains []string) {
	if len(domains) == 0 {
		r.v.fault(at.field("domains"), "must have at least one domain")
	}
	for j, domain := range domains {
		if fault := matching.DomainFault(domain); fault != "" {
			r.v.fault(at.item("domains", j), "%s", blame(domain, fault))
			continue
		}
		key := strings.ToLower(domain)
		if first, taken := r.domains[key]; taken {
			r.v.fault(at.item("domains", j), "%s is already a domain of virtual_hosts[%d]", quote(domain), first)
			continue
		}
		r.domains[key] = i
	}
}

// route decodes one route and reports whether it is to be kept. It is not if
// gRPC ignores it (gRFC A28).
func (r *routes) route(at *path, pb *routepb.Route, route *Route) bool {
	route.Name = pb.GetName()
	if pb.GetMatch() == nil {
		r.v.fault(at.field("match"), "must be set")
	} else {
		route.Match = r.v.routeMatch(at.field("match"), pb.GetMatch())
	}
	route.Headers = r.headerMutations(at, pb, r.host.headers)
	route.Overrides = r.v.filterOverrides(at, pb.GetTypedPerFilterConfig())
	switch action := pb.GetAction().(type) {
	case *routepb.Route_Route:
		return r.forwarding(at.field("route"), action.Route, route)
	case *routepb.Route_DirectResponse:
		route.Action = r.directResponse(at.field("direct_response"), action.DirectResponse)
	case *routepb.Route_Redirect:
		route.Action = r.redirect(at.field("redirect"), action.Redirect)
	case nil:
		route.Action = &Unroutable{Reason: "the route has no action"}
	default:
		route.Action = &Unroutable{Reason: "the route's action is " + whichOneof(pb, "action") + ", which a gRPC client does not carry out"}
	}
	return true
}
