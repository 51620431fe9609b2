package xdsresource

import (
	"slices"
	"sync/atomic"
)

// Route returns the first route, in their order, that matches the RPC, or nil.
//
// It takes no lock and may be called concurrently. For the first 1,024 methods
// it remembers which routes the path leaves in question, so that later RPCs of
// such a method compare no path and run no regular expression on it, and find
// routes that ask for one value of a header by that value. For other methods it
// visits only routes for the method or a prefix of it. It allocates only when
// it meets a method for the first time or copies metadata, see RPC.Context.
func (vh *VirtualHost) Route(rpc RPC) *Route { return vh.table().find(&rpc) }

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
	return newRouteTable(vh.Routes, clustersOf(vh.Routes))
}

// routeTable finds routes by method. Routes that ask for the same path, or the
// same prefix, form a list; an RPC is matched by walking the few lists that its
// method belongs to side by side, in the order of the routes. The lists only
// narrow the choice: RouteMatch has the last word.
type routeTable struct {
	routes []*Route
	// next links the routes of one list, in ascending order.
	next []int32
	// exact has the heads of the lists of case-sensitive paths.
	exact map[string]int32
	// prefixes has the lists of case-sensitive prefixes, and of regular
	// expressions by the literal that they start with.
	prefixes radix
	// folded has the lists of case-insensitive paths and prefixes, in lower
	// case.
	folded   radix
	clusters []string
	memo     atomic.Pointer[memo]
}

// noRoute ends a list of routes.
const noRoute = -1

func newRouteTable(routes []*Route, clusters []string) *routeTable {
	t := &routeTable{
		routes:   routes,
		next:     make([]int32, len(routes)),
		exact:    make(map[string]int32, countExact(routes)),
		folded:   radix{fold: true},
		clusters: clusters,
	}
	// From the last to the first, so that lists come out in order.
	for i := len(routes) - 1; i >= 0; i-- {
		t.add(int32(i), &routes[i].Match)
	}
	return t
}

// with returns the table for routes that an edit has made of those of t.
func (t *routeTable) with(e *routeEdit) *routeTable {
	if !e.sameMatches {
		return newRouteTable(e.routes, t.clustersAfter(e))
	}
	// Which route an RPC may fit depends on what the routes match alone.
	edited := &routeTable{
		routes: e.routes, next: t.next, exact: t.exact, prefixes: t.prefixes, folded: t.folded,
		clusters: t.clustersAfter(e),
	}
	edited.memo.Store(t.memo.Load())
	return edited
}

// countExact returns how many routes ask for a case-sensitive path.
func countExact(routes []*Route) (n int) {
	for _, route := range routes {
		if route.Match.PathKind == PathExact && !route.Match.CaseInsensitive {
			n++
		}
	}
	return n
}

func (t *routeTable) add(i int32, m *RouteMatch) {
	if m.PathKind == PathExact && !m.CaseInsensitive {
		head, ok := t.exact[m.Path]
		if !ok {
			head = noRoute
		}
		t.link(i, m, &head)
		t.exact[m.Path] = head
		return
	}
	switch {
	case m.PathKind == PathRegex:
		t.link(i, m, t.prefixes.slot(m.regexPrefix))
	case m.CaseInsensitive:
		t.link(i, m, t.folded.slot(lowerASCII(m.Path)))
	default:
		t.link(i, m, t.prefixes.slot(m.Path))
	}
}

// link puts route i at the head of a list. If i matches whatever gets there,
// the rest of the list is out of reach and is let go.
func (t *routeTable) link(i int32, m *RouteMatch, head *int32) {
	listDecides := m.PathKind == PathPrefix || m.PathKind == PathExact && !m.CaseInsensitive
	t.next[i] = *head
	if m.onlyPath() && listDecides {
		t.next[i] = noRoute
	}
	*head = i
}

func (t *routeTable) find(rpc *RPC) *Route {
	path, _ := splitQuery(rpc.Method)
	h := headers{rpc: rpc}
	if l := t.recall(path); l != nil {
		return l.find(t.routes, rpc, &h)
	}
	w := t.walk(path)
	for i := w.next(); i != noRoute; i = w.next() {
		if route := t.routes[i]; route.Match.matchesRest(rpc, &h) {
			return route
		}
	}
	return nil
}

// walk goes through the routes whose paths fit, in order.
func (t *routeTable) walk(path string) walk {
	w := walk{t: t, path: path}
	w.all = !t.collect(path, &w.lists)
	return w
}

// collect finds the lists for a path. It reports false if they are too many.
func (t *routeTable) collect(path string, c *candidates) bool {
	if head, ok := t.exact[path]; ok {
		c.push(head)
	}
	return t.prefixes.collect(path, c) && t.folded.collect(path, c)
}

// walk is the state of a walk.
type walk struct {
	t     *routeTable
	path  string
	lists candidates
	// all has the routes gone through one by one from position on; the lists
	// were too many.
	all      bool
	position int32
}

// next returns the next route whose path fits, or noRoute.
func (w *walk) next() int32 {
	for {
		i := w.candidate()
		if i == noRoute || w.t.routes[i].Match.matchesPath(w.path) {
			return i
		}
	}
}

func (w *walk) candidate() int32 {
	if !w.all {
		return w.lists.pop(w.t.next)
	}
	if int(w.position) == len(w.t.routes) {
		return noRoute
	}
	w.position++
	return w.position - 1
}

// maxLists bounds the lists that are walked side by side. More than that
// means prefixes nested into each other as deep, and then going through the
// routes one by one is no worse.
const maxLists = 16

// candidates are the heads of lists of routes that may match.
type candidates struct {
	heads [maxLists]int32
	n     int
}

// push adds a list. It reports false if there is no room.
func (c *candidates) push(head int32) bool {
	if head == noRoute {
		return true
	}
	if c.n == maxLists {
		return false
	}
	c.heads[c.n] = head
	c.n++
	return true
}

// pop takes the first route, in the order of the routes, off its list.
func (c *candidates) pop(next []int32) int32 {
	if c.n == 0 {
		return noRoute
	}
	least := 0
	for i := 1; i < c.n; i++ {
		if c.heads[i] < c.heads[least] {
			least = i
		}
	}
	route := c.heads[least]
	if c.heads[least] = next[route]; next[route] == noRoute {
		c.n--
		c.heads[least] = c.heads[c.n]
	}
	return route
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
