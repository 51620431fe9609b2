package matching

import "slices"

// Table finds routes by method. Routes for the same path, or the same prefix, form a list; so do all others, which
// go by a regular expression, ignore case, or are the only one. The route of an RPC is the first of those that match in
// the few lists that its method belongs to. The lists only narrow the choice: Route.MatchesPath decides. A Table is immutable.
type Table struct {
	routes Routes
	next   []int32 // links the routes of a list, in ascending order
	// lists has the heads of the lists of a path and of a prefix, and lengths the lengths of the prefixes.
	lists   map[string]heads
	lengths lengths
	others  int32
}

type heads struct{ path, prefix int32 }

// Routes are the routes of a Table, which do not change. Its methods are called
// concurrently.
type Routes interface {
	Len() int
	// Matching returns the match of route i.
	Matching(i int32) *Route
}

// Compile makes t the Table of routes. It is called once.
func (t *Table) Compile(routes Routes) {
	t.routes, t.next, t.others = routes, make([]int32, routes.Len()), None
	if len(t.next) > 1 { // Many virtual hosts have one route. A map for it would take 256 bytes.
		t.lists = make(map[string]heads, len(t.next))
	}
	// From the last to the first, so that lists come out in order.
	for i := int32(len(t.next)) - 1; i >= 0; i-- {
		m := t.at(i)
		if t.lists == nil || m.CaseInsensitive || m.PathKind == PathRegex {
			t.next[i], t.others = t.others, i
			continue
		}
		h := t.of(m.Path)
		head := &h.path
		if m.PathKind != PathExact {
			head = &h.prefix
			t.lengths.add(len(m.Path))
		}
		t.next[i] = *head
		if m.onlyPath() && m.PathKind != PathSeparatedPrefix {
			t.next[i] = None // The path alone decides for i, so that no later route of the list is ever used.
		}
		*head = i
		t.lists[m.Path] = h
	}
}

func (t *Table) at(i int32) *Route { return t.routes.Matching(i) }

func (t *Table) of(path string) heads {
	if h, ok := t.lists[path]; ok {
		return h
	}
	return heads{None, None}
}

// None is the result of Find if no route matches.
const None = -1

// Find returns the first route that matches an RPC, or None.
func (t *Table) Find(rpc *RPC) int32 {
	path, _ := SplitQuery(rpc.Method)
	h := rpc.Headers()
	found := t.first(t.of(path).path, None, path, rpc, &h)
	for _, n := range slices.Backward(t.lengths) { // The longest ones usually come first in a table.
		if n <= len(path) {
			found = t.first(t.of(path[:n]).prefix, found, path, rpc, &h)
		}
	}
	return t.first(t.others, found, path, rpc, &h)
}

// first returns the first route of a list that matches, if it stands before the one that was found, which may be None, and
// otherwise that.
func (t *Table) first(i, found int32, path string, rpc *RPC, h *Headers) int32 {
	for ; i != None && (found == None || i < found); i = t.next[i] {
		if m := t.at(i); m.MatchesPath(path) && m.MatchesRest(rpc, h) {
			return i
		}
	}
	return found
}
