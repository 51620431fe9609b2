package xdsresource

// Route returns the first route, in their order, that matches the RPC, or nil.
//
// It takes no lock and visits only routes for the method or a prefix of it,
// unless the routes have more than 16 prefixes of the method. It allocates only
// when it copies metadata, see RPC.Context. It may be called concurrently.
func (vh *VirtualHost) Route(rpc RPC) *Route { return vh.table().find(&rpc) }

// Clusters returns the clusters that the routes forward to, each once, in the
// order of the routes. The caller must not change the slice.
func (vh *VirtualHost) Clusters() []string { return vh.table().clusters }

func (vh *VirtualHost) table() *routeTable {
	if vh.compiled != nil {
		return vh.compiled
	}
	return newRouteTable(vh.Routes)
}

// routeTable finds routes by method. Routes that ask for the same path, or the
// same prefix, form a list; an RPC is matched by walking the few lists that its
// method belongs to side by side, in the order of the routes. The lists only
// narrow the choice: RouteMatch.matches has the last word.
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
}

// noRoute ends a list of routes.
const noRoute = -1

func newRouteTable(routes []*Route) *routeTable {
	t := &routeTable{
		routes:   routes,
		next:     make([]int32, len(routes)),
		exact:    make(map[string]int32),
		folded:   radix{fold: true},
		clusters: clustersOf(routes),
	}
	// From the last to the first, so that lists come out in order.
	for i := len(routes) - 1; i >= 0; i-- {
		t.add(int32(i), &routes[i].Match)
	}
	return t
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
	onlyPath := len(m.Headers) == 0 && m.FractionPerMillion == nil
	listDecides := m.PathKind == PathPrefix || m.PathKind == PathExact && !m.CaseInsensitive
	t.next[i] = *head
	if onlyPath && listDecides {
		t.next[i] = noRoute
	}
	*head = i
}

func (t *routeTable) find(rpc *RPC) *Route {
	h := headers{rpc: rpc}
	var c candidates
	if !t.collect(rpc.Method, &c) {
		return t.scan(rpc, &h)
	}
	for i := c.pop(t.next); i != noRoute; i = c.pop(t.next) {
		if route := t.routes[i]; route.Match.matches(rpc, &h) {
			return route
		}
	}
	return nil
}

// collect finds the lists for a method. It reports false if they are too many.
func (t *routeTable) collect(method string, c *candidates) bool {
	if head, ok := t.exact[method]; ok {
		c.push(head)
	}
	return t.prefixes.collect(method, c) && t.folded.collect(method, c)
}

// scan tries one route after the other.
func (t *routeTable) scan(rpc *RPC, h *headers) *Route {
	for _, route := range t.routes {
		if route.Match.matches(rpc, h) {
			return route
		}
	}
	return nil
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

// clustersOf returns the clusters that routes forward to, each once.
func clustersOf(routes []*Route) []string {
	var s nameSet
	for _, route := range routes {
		if forward, ok := route.Action.(*Forward); ok {
			for i := range forward.Clusters {
				s.add(forward.Clusters[i].Name)
			}
		}
	}
	return s.names
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
