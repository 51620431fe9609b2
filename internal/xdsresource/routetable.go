package xdsresource

import (
	"slices"

	"github.com/dynxds/dynxds/internal/matching"
)

// Route returns the first route, in the order of the resource, that matches the RPC,
// or nil.
//
// It takes no lock and may be called concurrently. For the first 1,024 methods it
// remembers which routes can match the path. Later RPCs of such a method compare no
// path and run no regular expression on it, and routes that want a header to have one
// value are looked up by that value. For other methods, only routes for the method or a
// prefix of it are visited. It allocates only for a method that it has not seen before,
// or if it has to copy metadata, see RPC.Context.
func (vh *VirtualHost) Route(rpc matching.RPC) *Route {
	if i := vh.table().Find(&rpc); i != matching.None {
		return vh.Routes[i]
	}
	return nil
}

// Clusters returns the clusters that the routes forward or mirror RPCs to, each once.
// Clusters that only a header names are not among them, see WeightedCluster.Cluster. The
// caller must not change the slice, which stays the same while updates do not change the
// clusters.
func (vh *VirtualHost) Clusters() []string { return vh.table().clusters }

// SameClusters reports whether a and b return the same slice from Clusters, as two versions
// of a virtual host do if no update between them changed the clusters. It compares no names.
func SameClusters(a, b *VirtualHost) bool { return sameSlice(a.Clusters(), b.Clusters()) }

func (vh *VirtualHost) table() *routeTable {
	if vh.compiled != nil {
		return vh.compiled
	}
	return newRouteTable(vh, clustersOf(vh.Routes))
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

func newRouteTable(vh *VirtualHost, clusters []string) *routeTable {
	t := &routeTable{clusters: clusters}
	t.Compile(vh)
	return t
}

// with returns the table for vh, which e has made out of the virtual host of t.
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

// clustersAfter returns the clusters of the routes after an edit. It is the slice of t if
// they are the same.
func (t *routeTable) clustersAfter(e *routeEdit) []string {
	added, removed := clustersOf(e.added), clustersOf(e.removed)
	if len(added)+len(removed) > maxSought {
		return clustersOf(e.routes)
	}
	for _, name := range added {
		if !slices.Contains(t.clusters, name) {
			return clustersOf(e.routes)
		}
	}
	for _, name := range removed {
		if !slices.Contains(added, name) && !slices.ContainsFunc(e.routes, func(r *Route) bool { return r.leadsTo(name) }) {
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
