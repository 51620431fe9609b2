package xdsresource

import (
	"slices"

	"github.com/dynxds/dynxds/internal/matching"
)

// Route returns the first route, in their order, that matches the RPC, or nil.
//
// It takes no lock and may be called concurrently. For the first 1,024 methods
// it remembers which routes the path leaves in question, so that later RPCs of
// such a method compare no path and run no regular expression on it, and find
// routes that ask for one value of a header by that value. For other methods it
// visits only routes for the method or a prefix of it. It allocates only when
// it meets a method for the first time or copies metadata, see RPC.Context.
func (vh *VirtualHost) Route(rpc matching.RPC) *Route {
	if i := vh.table().Find(&rpc); i != matching.None {
		return vh.Routes[i]
	}
	return nil
}

// Clusters returns the clusters that the routes forward RPCs or their copies
// to, each once. Clusters that only a header names are not among them, see
// WeightedCluster.Cluster. The caller must not change the slice. It stays the same one
// while updates do not change which they are.
func (vh *VirtualHost) Clusters() []string { return vh.table().clusters }

// SameClusters reports whether Clusters is one slice for both, as it is for virtual hosts
// between which updates did not change the clusters. It compares no names.
func SameClusters(a, b *VirtualHost) bool { return sameSlice(a.Clusters(), b.Clusters()) }

func (vh *VirtualHost) table() *routeTable {
	if vh.compiled != nil {
		return vh.compiled
	}
	return newRouteTable(vh, clustersOf(vh.Routes))
}

// routeTable finds the routes of a virtual host, and has the clusters that they lead to.
type routeTable struct {
	matching.Table
	clusters []string
}

// Len implements matching.Routes.
func (vh *VirtualHost) Len() int { return len(vh.Routes) }

// Matching implements matching.Routes.
func (vh *VirtualHost) Matching(i int32) *matching.Route { return &vh.Routes[i].Match }

func newRouteTable(vh *VirtualHost, clusters []string) *routeTable {
	t := &routeTable{clusters: clusters}
	t.Compile(vh)
	return t
}

// with returns the table for a virtual host that an edit has made of that of t.
func (t *routeTable) with(vh *VirtualHost, e *routeEdit) *routeTable {
	if !e.sameMatches {
		return newRouteTable(vh, t.clustersAfter(e))
	}
	edited := &routeTable{clusters: t.clustersAfter(e)}
	edited.CompileLike(&t.Table, vh)
	return edited
}

// clustersOf returns the clusters that routes forward or mirror to, each once.
func clustersOf(routes []*Route) []string {
	var s nameSet
	for _, route := range routes {
		for name := range route.clusters {
			s.add(name)
		}
	}
	return s.names
}

// clusters yields the clusters that the route forwards or mirrors to.
func (r *Route) clusters(yield func(string) bool) {
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

// maxSought bounds the names that clustersAfter looks for one by one.
const maxSought = 16

// clustersAfter returns the clusters of the routes after an edit: those of t, if that is
// what they are.
func (t *routeTable) clustersAfter(e *routeEdit) []string {
	come, gone := clustersOf(e.come), clustersOf(e.gone)
	if len(come)+len(gone) > maxSought {
		return clustersOf(e.routes)
	}
	for _, name := range come {
		if !slices.Contains(t.clusters, name) {
			return clustersOf(e.routes)
		}
	}
	for _, name := range gone {
		if !slices.Contains(come, name) && !slices.ContainsFunc(e.routes, func(r *Route) bool { return r.leadsTo(name) }) {
			return clustersOf(e.routes)
		}
	}
	return t.clusters
}

func (r *Route) leadsTo(cluster string) bool {
	for name := range r.clusters {
		if name == cluster {
			return true
		}
	}
	return false
}

// nameSet collects names, each once, in the order in which they come.
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
