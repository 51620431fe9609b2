package matching

import "slices"

// Table finds routes by method. Routes for the same path, or the same prefix, form a list; so do all others, which
// go by a regular expression or ignore case. The route of an RPC is the first of those that match in the few lists that its
// method belongs to. The lists only narrow the choice: Route.MatchesPath decides. A Table is immutable.
type Table struct {
	routes Routes
	next   []int32 // links the routes of a list, in ascending order
	// exact and prefixes have the heads of the lists.
	exact    map[string]int32
	prefixes lookup
	others   int32
}

// Routes are the routes of a Table, which do not change. Its methods are called
// concurrently.
type Routes interface {
	Len() int
	// Matching returns the match of route i.
	Matching(i int32) *Route
}

// Compile makes t the Table of routes. It is called once.
func (t *Table) Compile(routes Routes) {
	t.routes, t.next, t.exact, t.others = routes, make([]int32, routes.Len()), make(map[string]int32), None
	// From the last to the first, so that lists come out in order.
	for i := int32(len(t.next)) - 1; i >= 0; i-- {
		switch m := t.at(i); {
		case m.CaseInsensitive || m.PathKind == PathRegex:
			t.next[i], t.others = t.others, i
		case m.PathKind == PathExact:
			t.next[i] = t.behind(t.exact, m)
			t.exact[m.Path] = i
		default:
			t.next[i] = t.behind(t.prefixes.numbers, m)
			t.prefixes.set(m.Path, i)
		}
	}
}

func (t *Table) at(i int32) *Route { return t.routes.Matching(i) }

// behind returns the head of the list that a route becomes the head of. If the path alone decides for the route, no later one of the list
// is ever used.
func (t *Table) behind(heads map[string]int32, m *Route) int32 {
	if m.onlyPath() && m.PathKind != PathSeparatedPrefix {
		return None
	}
	return headOf(heads, m.Path)
}

func headOf(heads map[string]int32, path string) int32 {
	if head, ok := heads[path]; ok {
		return head
	}
	return None
}

// None is the result of Find if no route matches.
const None = -1

// Find returns the first route that matches an RPC, or None.
func (t *Table) Find(rpc *RPC) int32 {
	path, _ := SplitQuery(rpc.Method)
	h := rpc.Headers()
	found := t.first(headOf(t.exact, path), None, path, rpc, &h)
	for _, n := range slices.Backward(t.prefixes.lengths) { // The longest ones usually come first in a table.
		if n <= len(path) {
			found = t.first(headOf(t.prefixes.numbers, path[:n]), found, path, rpc, &h)
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
