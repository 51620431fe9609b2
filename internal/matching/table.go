package matching

import (
	"hash/maphash"
	"math/bits"
	"slices"
)

// Table finds routes by method. Routes for the same path, or the same prefix, form a list; so do all others, which
// go by a regular expression or ignore case. The route of an RPC is the first of those that match in the few lists that its
// method belongs to. The lists only narrow the choice: Route.MatchesPath decides. A Table is immutable.
type Table struct {
	routes Routes
	next   []int32   // links the routes of a list, in ascending order
	exact  pathIndex // heads of the lists of paths
	// prefixes has the heads of the lists of prefixes, and lengths the lengths of these, ascending.
	prefixes pathIndex
	lengths  []int
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
	t.routes, t.next, t.others = routes, make([]int32, routes.Len()), None
	var exact, prefixes int
	for i := range int32(len(t.next)) {
		switch t.index(t.at(i)) {
		case &t.exact:
			exact++
		case &t.prefixes:
			prefixes++
		}
	}
	t.exact, t.prefixes = newPathIndex(exact), newPathIndex(prefixes)
	// From the last to the first, so that lists come out in order.
	for i := int32(len(t.next)) - 1; i >= 0; i-- {
		t.add(i, t.at(i))
	}
}

func (t *Table) at(i int32) *Route { return t.routes.Matching(i) }

// index returns the index that a route is in, nil if it is among the others.
func (t *Table) index(m *Route) *pathIndex {
	switch {
	case m.CaseInsensitive || m.PathKind == PathRegex:
		return nil
	case m.PathKind == PathExact:
		return &t.exact
	default:
		return &t.prefixes
	}
}

// add puts route i at the head of its list. If the path alone decides for i, no later route of the list is ever used.
func (t *Table) add(i int32, m *Route) {
	head, decides := &t.others, false
	if x := t.index(m); x != nil {
		head, decides = x.slot(m.Path, t.routes), m.onlyPath() && m.PathKind != PathSeparatedPrefix
		if at, known := slices.BinarySearch(t.lengths, len(m.Path)); x == &t.prefixes && !known {
			t.lengths = slices.Insert(t.lengths, at, len(m.Path))
		}
	}
	if t.next[i] = *head; decides {
		t.next[i] = None
	}
	*head = i
}

// None is the result of Find if no route matches.
const None = -1

// Find returns the first route that matches an RPC, or None.
func (t *Table) Find(rpc *RPC) int32 {
	path, _ := SplitQuery(rpc.Method)
	h := Headers{rpc: rpc}
	found := t.first(*t.exact.slot(path, t.routes), None, path, rpc, &h)
	for _, n := range slices.Backward(t.lengths) { // The longest ones usually come first in a table.
		if n <= len(path) {
			found = t.first(*t.prefixes.slot(path[:n], t.routes), found, path, rpc, &h)
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

// pathIndex finds the list of a path. It is a hash table with linear probing that does not hold the paths, which the routes
// have: 12 bytes a route at most, where a map takes 35 to 50. Of a RouteConfiguration of many megabytes two versions are
// in memory at a time.
type pathIndex struct {
	seed maphash.Seed
	// slots has the heads of the lists, or None. At most two thirds are taken.
	slots []int32
}

// newPathIndex returns an index with room for n paths.
func newPathIndex(n int) pathIndex {
	return pathIndex{maphash.MakeSeed(), slices.Repeat([]int32{None}, 1<<bits.Len(uint(n+n/2)))}
}

// slot returns the head of the list of a path, or the free slot for it.
func (x *pathIndex) slot(path string, routes Routes) *int32 {
	for i := maphash.String(x.seed, path); ; i++ {
		head := &x.slots[i&uint64(len(x.slots)-1)]
		if *head == None || routes.Matching(*head).Path == path {
			return head
		}
	}
}
