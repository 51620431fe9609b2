package matching

import (
	"hash/maphash"
	"math/bits"
	"slices"
)

// Table finds routes by method. Routes for the same path, or the same prefix, form a list; so do all others, which
// go by a regular expression or ignore case. An RPC is matched by merging the few lists that its method belongs to, in
// the order of the routes. The lists only narrow the choice: Route.MatchesPath decides. A Table is immutable.
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
		switch t.at(i).list() {
		case listOfPath:
			exact++
		case listOfPrefix:
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

// list says which kind of list a route is in.
type list int

const (
	listOfPath list = iota
	listOfPrefix
	listOfOthers
)

func (m *Route) list() list {
	switch {
	case m.CaseInsensitive || m.PathKind == PathRegex:
		return listOfOthers
	case m.PathKind == PathExact:
		return listOfPath
	default:
		return listOfPrefix
	}
}

// add puts route i at the head of its list. If the path alone decides for i, no later route of the list is ever used.
func (t *Table) add(i int32, m *Route) {
	head, decides := &t.others, false
	switch m.list() {
	case listOfPath:
		head, decides = t.exact.slot(m.Path, t.routes), m.onlyPath()
	case listOfPrefix:
		if at, known := slices.BinarySearch(t.lengths, len(m.Path)); !known {
			t.lengths = slices.Insert(t.lengths, at, len(m.Path))
		}
		head, decides = t.prefixes.slot(m.Path, t.routes), m.onlyPath() && m.PathKind == PathPrefix
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
	w := t.walk(path)
	i := w.next()
	for i != None && !t.at(i).MatchesRest(rpc, &h) {
		i = w.next()
	}
	return i
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

// walk iterates over the routes whose paths match, in order.
func (t *Table) walk(path string) walk {
	w := walk{t: t, path: path}
	w.all = !t.collect(path, &w.lists)
	return w
}

// collect finds the lists for a path. It reports false if there are too many.
func (t *Table) collect(path string, c *candidates) bool {
	ok := c.push(t.others) && c.push(*t.exact.slot(path, t.routes))
	for _, n := range t.lengths {
		if !ok || n > len(path) {
			break
		}
		ok = c.push(*t.prefixes.slot(path[:n], t.routes))
	}
	return ok
}

type walk struct {
	t        *Table
	path     string
	lists    candidates
	all      bool // there are too many lists: go through all routes, from position on
	position int32
}

// next returns the next route whose path matches, or None.
func (w *walk) next() int32 {
	for {
		i := w.candidate()
		if i == None || w.t.at(i).MatchesPath(w.path) {
			return i
		}
	}
}

func (w *walk) candidate() int32 {
	if !w.all {
		return w.lists.pop(w.t.next)
	}
	if int(w.position) == len(w.t.next) {
		return None
	}
	w.position++
	return w.position - 1
}

// maxLists bounds the lists that are merged. More of them need as many nested prefixes, for
// which going through all routes is no worse.
const maxLists = 16

// candidates are the heads of the lists of routes that may match.
type candidates struct {
	heads [maxLists]int32
	n     int
}

// push adds a list. It reports false if there is no room.
func (c *candidates) push(head int32) bool {
	if head == None {
		return true
	}
	if c.n == maxLists {
		return false
	}
	c.heads[c.n] = head
	c.n++
	return true
}

// pop removes and returns the least route, or None.
func (c *candidates) pop(next []int32) int32 {
	if c.n == 0 {
		return None
	}
	least := 0
	for i := 1; i < c.n; i++ {
		if c.heads[i] < c.heads[least] {
			least = i
		}
	}
	route := c.heads[least]
	if c.heads[least] = next[route]; next[route] == None {
		c.n--
		c.heads[least] = c.heads[c.n]
	}
	return route
}
