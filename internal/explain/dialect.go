package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// dialect is what an implementation of xDS does differently from dynxds, by the user agent of its
// node. The facts are those of gRPC-Go 1.85, C-core 1.76 and grpc-js 1.14.
type dialect struct {
	// name is that of the client in texts.
	name string
	// grpc says that it is gRPC without dynxds: it has what the gRFCs have.
	grpc bool
}

// An unknown client counts as the least capable.
func dialectOf(userAgent string) dialect {
	switch userAgent {
	case "dynxds", "envoy":
		return dialect{name: userAgent}
	case "":
		return dialect{name: "another gRPC client", grpc: true}
	default:
		return dialect{name: userAgent, grpc: true}
	}
}

// ignores returns why the client does nothing about something that dynxds acts on, or "".
func (d dialect) ignores(what string) string {
	if !d.grpc {
		return ""
	}
	return fmt.Sprintf("%s ignores %s", d.name, what)
}

// leavesOut returns why the client does not have a route, or "".
func (d dialect) leavesOut(r *xdsresource.Route) string {
	if !d.grpc {
		return ""
	}
	if len(r.Match.Query) > 0 && d.name != grpcJS {
		return d.name + " leaves out routes with query_parameters (gRFC A28)"
	}
	if f, ok := r.Action.(*xdsresource.Forward); ok {
		for i := range f.Clusters {
			if f.Clusters[i].Header != "" {
				return d.name + " leaves out routes with cluster_header (gRFC A28)"
			}
		}
	}
	return ""
}

// The user agents of gRPC-Go's own xds and of grpc-js.
const (
	grpcGo = "gRPC Go"
	grpcJS = "gRPC Node Pure JS"
)

// ofClient returns the conditions of a route that the client knows, and which it does not check.
func (d dialect) ofClient(m *matching.Route) (known *matching.Route, unchecked string) {
	if d.name != grpcJS || len(m.Query) == 0 {
		return m, ""
	}
	without := *m
	without.Query = nil
	return &without, d.name + " does not check query_parameters"
}

// neverMatches returns why a condition that holds never does for the client, or "".
func (d dialect) neverMatches(h *matching.Header) string {
	if d.grpc && (h.Name == ":method" || (d.name == grpcGo || d.name == grpcJS) && (strings.HasPrefix(h.Name, ":") || h.Name == "host")) {
		return fmt.Sprintf("for %s the header %s is absent", d.name, h.Name)
	}
	return ""
}

// filter returns why a filter does nothing, or "".
func (d dialect) filter(typeName string) string {
	if !d.grpc || slices.Contains(universalFilters, typeName) {
		return ""
	}
	return fmt.Sprintf("%s may not have this filter, and does without it then if is_optional is set", d.name)
}

// universalFilters are those of every gRPC client with xDS.
var universalFilters = []string{"envoy.extensions.filters.http.fault.v3.HTTPFault", "envoy.extensions.filters.http.router.v3.Router"}

// rejects returns what of a resource makes the client reject it.
func (d dialect) rejects(value any) (faults []string) {
	if !d.grpc {
		return nil
	}
	switch v := value.(type) {
	case *xdsresource.Listener:
		if v.RouteConfig != nil {
			return d.rejects(v.RouteConfig)
		}
	case *xdsresource.RouteConfiguration:
		for _, vh := range v.VirtualHosts {
			for _, r := range vh.Routes {
				if r.Match.PathKind == matching.PathSeparatedPrefix {
					return []string{fmt.Sprintf("%s rejects path_separated_prefix, of virtual host %q", d.name, vh.Name)}
				}
			}
		}
	case *xdsresource.Cluster:
		if v.Kind == xdsresource.ClusterStatic || v.Kind == xdsresource.ClusterStrictDNS {
			faults = append(faults, fmt.Sprintf("%s rejects clusters of type %s", d.name, v.Kind))
		}
		if v.LBPolicy == xdsresource.PolicyRandom {
			faults = append(faults, d.name+" rejects the policy RANDOM")
		}
	}
	return faults
}
