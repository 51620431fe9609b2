package explain

import (
	"fmt"
	"slices"
	"strings"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/provenance"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// chooseHost describes which virtual host the channel uses, and sets it. Without one it ends the
// explanation.
func (e *explainer) chooseHost(raw *routepb.RouteConfiguration) {
	rc, authority, domain := e.routes, e.request.Authority, ""
	if e.virtualHost = rc.VirtualHost(authority); e.virtualHost != nil {
		domain, _ = matching.BestDomain(e.virtualHost.Domains, authority)
		for name := range e.virtualHost.Clusters {
			e.selectable[name] = true
		}
	} else {
		e.end(Fate{Error: fmt.Sprintf("RouteConfiguration %q has no virtual host for authority %q; add it to the domains of one, or dial with grpc.WithAuthority",
			rc.Name, authority)})
	}
	for i, vh := range rc.VirtualHosts {
		var message *routepb.VirtualHost
		if i < len(raw.GetVirtualHosts()) {
			message = raw.GetVirtualHosts()[i]
		}
		v := VirtualHost{Name: vh.Name, Domains: vh.Domains, At: placeOf(message)}
		v.Domain, _ = matching.BestDomain(vh.Domains, authority)
		switch {
		case vh == e.virtualHost:
			v.Chosen, v.Reason = true, fmt.Sprintf("domain %q matches authority %q", domain, authority)
			e.rawHost = message
		case v.Domain != "":
			v.Reason = fmt.Sprintf("its domain %q matches too, but %q is more specific", v.Domain, domain)
		default:
			v.Reason = fmt.Sprintf("no domain matches authority %q", authority)
		}
		e.out.VirtualHosts = append(e.out.VirtualHosts, v)
	}
}

// quotedList joins names for a text.
func quotedList(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = fmt.Sprintf("%q", name)
	}
	return strings.Join(quoted, ", ")
}

// tryRoutes goes through the routes of the virtual host, up to one that every RPC takes that
// reaches it. Behind it, routes count, and those that almost match are listed.
func (e *explainer) tryRoutes() {
	left := 1.0 // the part of the RPCs that no route so far has taken
	next := 0   // of the virtual host's routes
	for i, raw := range e.rawHost.GetRoutes() {
		r := Route{Index: i, Name: raw.GetName(), At: placeOf(raw, provenance.Matches), Later: left == 0}
		if _, out := slices.BinarySearch(e.virtualHost.LeftOut, i); out {
			r.Match, r.LeftOut = "not read", "gRPC clients leave the route out: its cluster_specifier is not set or not supported (gRFC A28)"
		} else {
			left *= 1 - e.tryRoute(&r, e.virtualHost.Routes[next], raw, left)
			next++
		}
		if r.Later && !r.almost() {
			e.out.RoutesLeft++
		} else {
			e.out.Routes = append(e.out.Routes, r)
		}
	}
}

// almost reports whether a route that is not taken has the path of the RPC: another condition fails, or it comes later.
func (r *Route) almost() bool {
	return r.LeftOut == "" && r.Action == nil && !r.otherPath
}

// tryRoute describes a route, which is also raw as a message, and what becomes of the RPCs that take it. It returns the part of those
// that reach it that do.
func (e *explainer) tryRoute(r *Route, route *xdsresource.Route, raw *routepb.Route, left float64) float64 {
	r.Match = DescribeMatch(&route.Match)
	if r.LeftOut = e.implementation.leavesOut(route); r.LeftOut != "" {
		return 0
	}
	var match *matching.Route
	match, r.Unchecked = e.implementation.ofClient(&route.Match)
	r.Failed, r.otherPath = e.unmet(match)
	fraction := 1.0
	if f := route.Match.Conditions().FractionPerMillion; f != nil {
		fraction = min(float64(*f)/matching.Million, 1)
	}
	if r.Failed == "" && fraction == 0 {
		r.Failed = "its fraction is 0% of the RPCs"
	}
	if r.Failed != "" || r.Later {
		return 0
	}
	r.Share = percent(100 * left * fraction)
	x := &routeExplainer{explainer: e, Action: new(Action), route: route, raw: raw, share: r.Share}
	x.describe()
	r.Action, r.endings = x.Action, append(x.ended, x.passed...)
	return fraction
}

// unmet returns what the RPCs have instead of the first condition that they do not meet, or "", and whether that is about the path.
func (e *explainer) unmet(m *matching.Route) (failed string, otherPath bool) {
	otherPath, query, header := m.Unmet(&e.rpc)
	switch {
	case otherPath:
		path, _ := matching.SplitQuery(e.request.Method)
		return "path is " + quote(path), true
	case query != nil:
		value, present := matching.QueryParameter(e.request.Method, query.Name)
		switch {
		case present:
			return fmt.Sprintf("query %s is %s", query.Name, quote(value)), false
		case strings.Contains(e.request.Method, "?"):
			return fmt.Sprintf("query %s is absent", query.Name), false
		default:
			return fmt.Sprintf("query %s is absent; a method without a query meets no condition on it (gRFC A28)", query.Name), false
		}
	case header != nil:
		return e.unmetHeader(header, ""), false
	}
	headers := m.Conditions().Headers
	for i := range headers {
		if reason := e.implementation.neverMatches(&headers[i]); reason != "" {
			return e.unmetHeader(&headers[i], reason), false
		}
	}
	return "", false
}

func (e *explainer) unmetHeader(h *matching.Header, reason string) string {
	have := absent
	headers := e.rpc.Headers()
	value, present := headers.Get(h.Name)
	switch {
	case present:
		have = quote(value)
	case reason != "":
	case strings.HasSuffix(h.Name, "-bin"):
		reason = "gRPC takes headers whose names end in -bin for absent"
	case h.Invert && h.Kind != matching.HeaderPresent:
		reason = "an inverted condition does not hold for a header that is absent"
	}
	return strings.TrimSuffix(fmt.Sprintf("header %s is %s; %s", h.Name, have, reason), "; ")
}

const absent = "absent"

// title names a route in the outcome.
func (r *Route) title() string {
	if r.Name != "" {
		return fmt.Sprintf("route %d %q", r.Index, r.Name)
	}
	return fmt.Sprintf("route %d", r.Index)
}
