package xdsresource

import (
	"cmp"
	"slices"
	"strings"
	"time"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/xdsclient"
)

// RouteConfiguration is a validated RouteConfiguration.
type RouteConfiguration struct {
	Name         string
	VirtualHosts []*VirtualHost
	// Plugins has the clusters of type ClusterPlugin that routes forward to, by name. The control plane has no Cluster of
	// these names.
	Plugins map[string]*Cluster
	// Ignored lists fields that the client does not act on, and what was left out of VirtualHosts: header edits that gRPC
	// cannot make, optional filter overrides of unknown types, routes that gRFC
	// A28 requires clients to ignore. See IgnoredFields. It is empty if the
	// RouteConfiguration is part of a Listener, which then has the list.
	Ignored []xdsclient.Ignored

	// For the next version: its regular expressions, its bytes without virtual hosts, and the virtual hosts by their bytes without
	// routes.
	regexes map[regexKey]matching.Regex
	head    string
	hosts   map[string]*VirtualHost
}

// VirtualHost is a validated VirtualHost with the routes that gRPC can use, in order.
// The decoder compiles the table of Route; on a value that was not decoded, each call does.
// Settings for all routes (retry policy, mirrors, header edits) have been merged into the
// routes, except filter overrides.
type VirtualHost struct {
	Name    string
	Domains []string
	Routes  []*Route
	// LeftOut are the places in the resource of the routes that gRPC clients leave out, ascending (gRFC A28): their cluster_specifier
	// is not set or not supported.
	LeftOut []int
	// Overrides is VirtualHost.typed_per_filter_config, the least specific of
	// the three levels.
	Overrides FilterOverrides

	compiled *matching.Table
}

// Route is one route: what it matches, and what becomes of the RPC. RPCs share it and
// everything it refers to, so nothing of it may be changed.
type Route struct {
	// Name is Route.name, for logs; often empty.
	Name  string
	Match matching.Route
	*Settings

	// key is the settings in the resource, for the next version, or "" if they depend on more than that and the levels above.
	key string
}

// Settings are what a Route has besides its name and match. There may be many routes, few of which
// differ in these, so equal ones share them.
type Settings struct {
	// Action is what a matching RPC does.
	Action Action
	// MaxStreamDuration bounds matching RPCs. nil: the Listener's bound
	// applies; 0: no bound. Source: gRFC A31.
	MaxStreamDuration *time.Duration
	// Retry is the policy of the route, or else of its virtual host. nil: the
	// RPC is not retried. Set only beside a Forward. Source: gRFC A44.
	Retry *RetryPolicy
	// HashPolicies say what the hash of an RPC is made of, see Hash. Set only
	// beside a Forward. Source: gRFC A42.
	HashPolicies []HashPolicy
	// Mirrors say where RPCs are mirrored to: the policies of the route, or else
	// of its virtual host, or else of the RouteConfiguration. Set only beside a
	// Forward.
	Mirrors []Mirror
	// Rewrite changes method and authority on their way to the backend. nil:
	// both stay. Set only beside a Forward; see RewritePath and
	// RewriteAuthority.
	Rewrite *Rewrite
	// Headers edits the metadata of RPCs whose WeightedCluster has no edits of its
	// own. nil: no edits. See HeadersFor.
	Headers *HeaderMutations
	// Overrides is Route.typed_per_filter_config.
	Overrides FilterOverrides
}

func readRouteConfiguration(v *validator, raw []byte) *RouteConfiguration {
	head, _ := without(raw, fieldVirtualHosts)
	pb := new(routepb.RouteConfiguration)
	if !v.readNamed(head, pb, "name", pb.GetName) {
		return nil
	}
	last, _ := v.Last.(*RouteConfiguration)
	return routeConfigurationAt(v, nil, pb, head, raw, last)
}

// routeConfigurationAt decodes a RouteConfiguration, which is a resource of its
// own (at is nil) or part of a Listener, with the virtual hosts in raw; pb and head are without. last is the version before, or nil.
func routeConfigurationAt(v *validator, at *faults.Path, pb *routepb.RouteConfiguration, head, raw []byte, last *RouteConfiguration) *RouteConfiguration {
	rc := &RouteConfiguration{Name: pb.GetName(), head: textIn(head), hosts: make(map[string]*VirtualHost)}
	d := newRouteDecoder(v, at, pb)
	if last != nil {
		v.lastRegexes = last.regexes
	}
	for list := fields(raw); list.nextOf(fieldVirtualHosts); {
		rest, count := without(list.value, fieldRoutes)
		d.last, d.next = new(VirtualHost), 0
		if last != nil && last.head == rc.head {
			d.last = cmp.Or(last.hosts[textIn(rest)], d.last)
		}
		vh := d.virtualHost(at, len(rc.VirtualHosts), list.value, rest, count)
		rc.VirtualHosts, rc.hosts[textIn(rest)] = append(rc.VirtualHosts, vh), vh
	}
	rc.regexes, rc.Plugins = v.regexes, d.used
	return rc
}

// routeDecoder decodes the virtual hosts and routes of one RouteConfiguration.
type routeDecoder struct {
	*validator
	// overrides has the overrides of filters by their bytes. Equal ones of a resource are one.
	overrides map[string]knownOverride
	// plugins has the clusters of cluster_specifier_plugins, and used those that routes forward to, inline ones too.
	plugins, used map[string]*Cluster
	// domains has the index of the virtual host for each domain so far.
	domains map[string]int
	// mostSpecificWins is most_specific_header_mutations_wins.
	mostSpecificWins bool
	// maxBody bounds the body of a DirectResponse.
	maxBody int
	// known has, by the bytes of settings, the first route of the current virtual host with these settings, and the notes of ignored fields.
	known map[string]knownRoute
	// last is the current virtual host in the version before, empty if it is new, and next the index in last.Routes where the search for
	// the next settings begins.
	last *VirtualHost
	next int
	// routePB and matchPB are for the route at hand.
	routePB routepb.Route
	matchPB routepb.RouteMatch
	// all applies to all routes, host to those of the current virtual host.
	all, host defaults
}

type knownRoute struct {
	*Route
	notes []int
}

// defaults are the settings of the levels above for routes without their own.
type defaults struct {
	headers *HeaderMutations
	mirrors []Mirror
	retry   *RetryPolicy
	hedge   *routepb.HedgePolicy
}

// newRouteDecoder decodes the fields of a RouteConfiguration that apply to all its virtual
// hosts.
func newRouteDecoder(v *validator, at *faults.Path, pb *routepb.RouteConfiguration) *routeDecoder {
	d := &routeDecoder{
		validator:        v,
		overrides:        make(map[string]knownOverride),
		domains:          make(map[string]int),
		mostSpecificWins: pb.GetMostSpecificHeaderMutationsWins(),
		maxBody:          defaultMaxBody,
	}
	d.plugins = d.clusterSpecifierPlugins(at, pb.GetClusterSpecifierPlugins())
	if limit := pb.GetMaxDirectResponseBodySizeBytes(); limit != nil {
		d.maxBody = int(min(limit.GetValue(), 1<<31-1)) // an int may have 32 bits
	}
	d.all.headers = d.headerMutations(at, pb, nil)
	d.all.mirrors = d.mirrors(at, pb.GetRequestMirrorPolicies(), nil)
	return d
}

// virtualHost decodes a virtual host. One that is malformed is an error, and is read without its routes.
func (d *routeDecoder) virtualHost(at *faults.Path, i int, raw, rest []byte, count int) *VirtualHost {
	at = at.Item("virtual_hosts", i)
	pb := new(routepb.VirtualHost)
	d.read(at, rest, pb)
	d.checkDomains(at, i, pb.GetDomains())
	d.enter(at, pb)
	vh := &VirtualHost{
		Name:      pb.GetName(),
		Domains:   pb.GetDomains(),
		Overrides: d.filterOverrides(at, pb.GetTypedPerFilterConfig()),
		Routes:    make([]*Route, 0, count),
	}
	// One allocation for all routes, since they have the same lifetime.
	all, routes := make([]Route, count), fields(raw)
	for i := range all {
		if routes.nextOf(fieldRoutes); d.routePart(at.Item("routes", i), routes.value, &all[i]) {
			vh.Routes = append(vh.Routes, &all[i])
		} else {
			vh.LeftOut = append(vh.LeftOut, i)
		}
	}
	if !d.failed() {
		vh.compiled = routeTable(vh.Routes, d.last)
	}
	return vh
}

// enter decodes the fields of a virtual host that apply to all its routes.
func (d *routeDecoder) enter(at *faults.Path, pb *routepb.VirtualHost) {
	d.known = make(map[string]knownRoute)
	d.host = defaults{
		headers: d.headerMutations(at, pb, d.all.headers),
		mirrors: d.mirrors(at, pb.GetRequestMirrorPolicies(), d.all.mirrors),
		retry:   d.retryPolicy(at.Field("retry_policy"), pb.GetRetryPolicy()),
		hedge:   pb.GetHedgePolicy(),
	}
}

func (d *routeDecoder) checkDomains(at *faults.Path, i int, domains []string) {
	if len(domains) == 0 {
		d.fault(at.Field("domains"), "must have at least one domain")
	}
	for j, domain := range domains {
		if fault := matching.DomainFault(domain); fault != "" {
			d.fault(at.Item("domains", j), "%s %s", faults.Quote(domain), fault)
			continue
		}
		key := strings.ToLower(domain)
		if first, taken := d.domains[key]; taken {
			d.fault(at.Item("domains", j), "%s is already a domain of virtual_hosts[%d]", faults.Quote(domain), first)
			continue
		}
		d.domains[key] = i
	}
}

// route decodes what a route has besides its name and match. It returns nil if gRPC ignores the route (gRFC A28).
func (d *routeDecoder) route(at *faults.Path, pb *routepb.Route) *Settings {
	s := &Settings{
		Headers:   d.headerMutations(at, pb, d.host.headers),
		Overrides: d.filterOverrides(at, pb.GetTypedPerFilterConfig()),
	}
	switch action := pb.GetAction().(type) {
	case *routepb.Route_Route:
		if !d.forwarding(at.Field("route"), action.Route, s) {
			return nil
		}
	case *routepb.Route_DirectResponse:
		s.Action = d.directResponse(at.Field("direct_response"), action.DirectResponse)
	case *routepb.Route_Redirect:
		s.Action = d.redirect(at.Field("redirect"), action.Redirect)
	case nil:
		s.Action = &Unroutable{Reason: "the route has no action"}
	default:
		s.Action = &Unroutable{Reason: "the route's action is " + whichOneof(pb, "action") + ", which a gRPC client does not carry out"}
	}
	return s
}

// Route returns the first route, in the order of the resource, that matches the RPC,
// or nil.
//
// It takes no lock and may be called concurrently. Only routes for the method or a prefix of it, and those that ignore
// case or have a regular expression, are visited. It allocates only if it has to copy metadata, see RPC.Context.
func (vh *VirtualHost) Route(rpc matching.RPC) *Route {
	table := vh.compiled
	if table == nil {
		table = routeTable(vh.Routes, vh)
	}
	if i := table.Find(&rpc); i != matching.None {
		return vh.Routes[i]
	}
	return nil
}

// Clusters yields the clusters that the routes forward or mirror RPCs to, again for each route.
// Clusters that only a header names are not among them, see WeightedCluster.Cluster.
func (vh *VirtualHost) Clusters(yield func(string) bool) {
	for _, route := range vh.Routes {
		for name := range route.Clusters {
			if !yield(name) {
				return
			}
		}
	}
}

// routeTable makes the table of routes. If another version has the same matches, the lists of that version's table serve again.
func routeTable(routes []*Route, other *VirtualHost) *matching.Table {
	at := func(i int32) *matching.Route { return &routes[i].Match }
	same := func(a, b *Route) bool { return a.Match == b.Match }
	if other.compiled != nil && slices.EqualFunc(routes, other.Routes, same) {
		return other.compiled.Of(at)
	}
	return matching.NewTable(len(routes), at)
}

// Clusters yields the clusters that the route forwards or mirrors to.
func (r *Route) Clusters(yield func(string) bool) {
	if forward, ok := r.Action.(*Forward); ok {
		for i := range forward.Clusters {
			if name := forward.Clusters[i].Name; name != "" && !yield(name) {
				return
			}
		}
	}
	for i := range r.Mirrors {
		if name := r.Mirrors[i].Cluster; name != "" && !yield(name) {
			return
		}
	}
}

// VirtualHost returns the virtual host for an authority, or nil. An exact domain is
// preferred to "*suffix", that to "prefix*", and that to "*"; among wildcards of a kind
// the longest wins. Case does not matter. A wildcard stands for at least one character.
// A port is part of the authority.
//
// VirtualHost looks at all domains: a channel calls it once for each version. It does not allocate if they are in lower case.
func (rc *RouteConfiguration) VirtualHost(authority string) (found *VirtualHost) {
	highest := uint64(0)
	for _, vh := range rc.VirtualHosts {
		if _, rank := matching.BestDomain(vh.Domains, authority); rank > highest {
			found, highest = vh, rank
		}
	}
	return found
}
