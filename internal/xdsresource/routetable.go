package xdsresource

import (
	"slices"

	"github.com/dynxds/dynxds/internal/matching"
)

// Route returns the first route, in the order of the resource, that matches the RPC,
// or nil.
//
// It takes no lock and may be called concurrently. Only routes for the method or a prefix of it, and those that ignore
// case or have a regular expression, are visited. It allocates only if it has to copy metadata, see RPC.Context.
func (vh *VirtualHost) Route(rpc matching.RPC) *Route {
	if i := vh.table().Find(&rpc); i != matching.None {
		return vh.Routes[i]
	}
	return nil
}

// Clusters returns the clusters that the routes forward or mirror RPCs to, each once.
// Clusters that only a header names are not among them, see WeightedCluster.Cluster. The
// caller must not change the slice.
func (vh *VirtualHost) Clusters() []string { return vh.table().clusters }

// SameClusters reports whether a and b return the same from Clusters.
func SameClusters(a, b *VirtualHost) bool { return slices.Equal(a.Clusters(), b.Clusters()) }

func (vh *VirtualHost) table() *routeTable {
	if vh.compiled != nil {
		return vh.compiled
	}
	return newRouteTable(vh)
}

// routeTable finds the routes of a virtual host and lists their clusters.
type routeTable struct {
	matching.Table
	clusters []string
}

// Len implements matching.Routes.
func (vh *VirtualHost) Len() int { return len(vh.Routes) }

// Matching implements matching.Routes.
func (vh *VirtualHost) Matching(i int32) *matching.Route { return &vh.Routes[i].Match }

func newRouteTable(vh *VirtualHost) *routeTable {
	var s nameSet
	for _, route := range vh.Routes {
		for name := range route.Clusters {
			s.add(name)
		}
	}
	t := &routeTable{clusters: s.names}
	t.Compile(vh)
	return t
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

// nameSet collects names, each once, in the order in which they are added.
type nameSet struct {
	names []string
	known map[string]struct{}
}

func (s *nameSet) add(name string) {
	if _, ok := s.known[name]; ok {
		return
	}
	if s.known == nil {
		s.known = make(map[string]struct{})
	}
	s.known[name] = struct{}{}
	s.names = append(s.names, name)
}
