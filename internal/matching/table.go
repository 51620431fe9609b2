package matching

import "slices"

// Table finds routes by method. Routes for the same path, or the same prefix, form a list; so do all others, which
// go by a regular expression, ignore case, or are the only one. The route of an RPC is the first of those that match in
// the few lists that its method belongs to. The lists only narrow the choice: Route.MatchesPath decides. A Table is immutable.
type Table struct {
	at func(i int32) *Route
	// next links the routes of a list, in ascending order. Here a route has the number of its index and 1, and 0 is none.
	next []int32
	// lists has the heads of the lists of a path and of a prefix, and lengths the lengths of the prefixes, ascending: what is found by a
	// prefix takes a map access for each.
	lists   map[string]heads
	lengths []int
	others  int32
}

type heads struct{ path, prefix int32 }

// NewTable returns the Table of n routes, which do not change. at returns the match of route i, and is called concurrently.
func NewTable(n int, at func(i int32) *Route) *Table {
	t := &Table{at: at, next: make([]int32, n+1)}
	if n > 1 { // Many virtual hosts have one route. A map for it would take 256 bytes.
		t.lists = make(map[string]heads, n)
	}
	// From the last to the first, so that lists come out in order.
	for i := int32(n); i > 0; i-- {
		m := at(i - 1)
		if t.lists == nil || m.CaseInsensitive || m.PathKind == PathRegex {
			t.next[i], t.others = t.others, i
			continue
		}
		h := t.lists[m.Path]
		head := &h.path
		if m.PathKind != PathExact {
			head = &h.prefix
			if at, known := slices.BinarySearch(t.lengths, len(m.Path)); !known {
				t.lengths = slices.Insert(t.lengths, at, len(m.Path))
			}
		}
		t.next[i], *head = *head, i
		t.lists[m.Path] = h
	}
	return t
}

// Of returns the Table of other routes whose matches are the same.
func (t *Table) Of(at func(i int32) *Route) *Table {
	other := *t
	other.at = at
	return &other
}

// None is the result of Find if no route matches.
const None = -1

// Find returns the first route that matches an RPC, or None.
func (t *Table) Find(rpc *RPC) int32 {
	path, _ := SplitQuery(rpc.Method)
	h := rpc.Headers()
	found := t.first(t.lists[path].path, 0, path, rpc, &h)
	for _, n := range slices.Backward(t.lengths) { // The longest ones usually come first in a table.
		if n <= len(path) {
			found = t.first(t.lists[path[:n]].prefix, found, path, rpc, &h)
		}
	}
	return t.first(t.others, found, path, rpc, &h) - 1
}

// first returns the first route of a list that matches, if it stands before the one that was found, which may be none, and
// otherwise that.
func (t *Table) first(i, found int32, path string, rpc *RPC, h *Headers) int32 {
	for ; i > 0 && (found == 0 || i < found); i = t.next[i] {
		if m := t.at(i - 1); m.MatchesPath(path) && m.MatchesRest(rpc, h) {
			return i
		}
	}
	return found
}
