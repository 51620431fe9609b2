package explain

import (
	"fmt"
	"strings"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/dialect"
	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// implementation is a client whose node has a user agent, and which may do things differently from dynxds.
type implementation struct {
	// name is that of the client in texts.
	name string
	dialect.Implementation
}

// about returns why the client does not do what dynxds does about a feature, or "".
func (s implementation) about(f *dialect.Feature) string { return f.About(s.Implementation, s.name) }

// leavesOut returns why the client does not have a route, or "".
func (s implementation) leavesOut(r *xdsresource.Route) string {
	if len(r.Match.Conditions().Query) > 0 && dialect.QueryParameters.On(s.Implementation) == dialect.LeavesOut {
		return s.about(dialect.QueryParameters)
	}
	if f, ok := r.Action.(*xdsresource.Forward); ok {
		for i := range f.Clusters {
			if f.Clusters[i].Header != "" {
				return s.about(dialect.ClusterHeader)
			}
		}
	}
	return ""
}

// ofClient returns the conditions of a route that the client knows, and which it does not check.
func (s implementation) ofClient(m *matching.Route) (known *matching.Route, unchecked string) {
	if len(m.Conditions().Query) == 0 || dialect.QueryParameters.On(s.Implementation) != dialect.Ignores {
		return m, ""
	}
	without, further := *m, *m.Conditions()
	further.Query, without.Further = nil, &further
	return &without, s.about(dialect.QueryParameters)
}

// neverMatches returns why a condition that holds never does for the client, or "".
func (s implementation) neverMatches(h *matching.Header) string {
	of := dialect.PseudoHeaders
	switch {
	case h.Name == ":method":
		of = dialect.MethodHeader
	case !strings.HasPrefix(h.Name, ":") && h.Name != "host":
		return ""
	}
	if of.On(s.Implementation) != dialect.Absent {
		return ""
	}
	return fmt.Sprintf("for %s the header %s is absent", s.name, h.Name)
}

// filter returns why a filter does nothing, or "".
func (s implementation) filter(typeName string) string {
	if dialect.Filters.On(s.Implementation) == dialect.Obeys || dialect.IsUniversal(typeName) {
		return ""
	}
	return fmt.Sprintf("%s may not have this filter, and does without it then if is_optional is set", s.name)
}

// rejects returns what of a resource makes the client reject it.
func (s implementation) rejects(value any, message proto.Message) (faults []string) {
	switch v := value.(type) {
	case *xdsresource.Listener:
		if v.RouteConfig != nil {
			return s.rejects(v.RouteConfig, nil)
		}
	case *xdsresource.RouteConfiguration:
		for _, vh := range v.VirtualHosts {
			for _, r := range vh.Routes {
				if why := s.about(dialect.SegmentPrefix); why != "" && r.Match.PathKind == matching.PathSeparatedPrefix {
					return []string{fmt.Sprintf("%s, of virtual host %q", why, vh.Name)}
				}
			}
		}
	case *xdsresource.Cluster:
		if dialect.StaticClusters.On(s.Implementation) == dialect.Rejects && (v.Kind == xdsresource.ClusterStatic || v.Kind == xdsresource.ClusterStrictDNS) {
			faults = append(faults, fmt.Sprintf("%s rejects clusters of type %s", s.name, v.Kind))
		}
		if c, _ := message.(*clusterpb.Cluster); s.rejectsPolicy(c) {
			faults = append(faults, fmt.Sprintf("%s rejects the policy %s", s.name, c.GetLbPolicy()))
		}
	}
	return faults
}

// rejectsPolicy reports whether the client rejects a Cluster for its lb_policy. Of clients that prefer
// load_balancing_policy, only gRPC-Go looks at both.
func (s implementation) rejectsPolicy(c *clusterpb.Cluster) bool {
	if c.GetLoadBalancingPolicy() != nil && s.Implementation != dialect.GRPCGo {
		return false
	}
	switch c.GetLbPolicy() {
	case clusterpb.Cluster_RANDOM, clusterpb.Cluster_MAGLEV:
		return dialect.OtherPolicies.On(s.Implementation) == dialect.Rejects
	case clusterpb.Cluster_LEAST_REQUEST:
		return dialect.LeastRequest.On(s.Implementation) != dialect.Obeys
	default:
		return false
	}
}
