package matching

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync/atomic"
)

// Bounds on what a Table remembers.
const (
	// memoPaths is the number of paths, a power of two.
	memoPaths = 1 << 10
	// memoProbes is the number of places that a path may be at.
	memoProbes = 8
	// memoPathLength is the length of the longest path that is remembered.
	memoPathLength = 1 << 10
	// memoRoutes is the number of routes in all shortlists: 4 MiB.
	memoRoutes = 1 << 20
	// memoShared is the number of shortlists that further paths can share.
	memoShared = 1 << 6
)

// memo remembers for each path which routes it leaves in question. With 10,000 routes
// that are told apart by a header, or by a mix of prefixes, regular expressions and
// headers, it makes the difference between 0.5 µs and 0.1 to 1.4 ms (BenchmarkRoute);
// where the path alone decides, between 20 ns and 50 to 200 ns. It is
// filled while RPCs come and never emptied: it lives as long as its
// Table, and programs call the same few methods again and again. When it
// is full, RPCs of further methods do without.
type memo struct {
	seed  maphash.Seed
	slots [memoPaths]atomic.Pointer[remembered]
	// shared has shortlists by their hash: where routes are told apart by
	// headers, all paths have the same long one.
	shared [memoShared]atomic.Pointer[shortlist]
	// room is how many routes may still be remembered.
	room atomic.Int64
}

// remembered is immutable.
type remembered struct {
	path string
	// list is nil if there was no room for it.
	list *shortlist
}

// recall returns the routes that can match a path, or nil if the path is not remembered
// and there is no room for it.
func (t *Table) recall(path string) *shortlist {
	m := t.memo.Load()
	if m == nil {
		fresh := &memo{seed: maphash.MakeSeed()}
		fresh.room.Store(memoRoutes)
		t.memo.CompareAndSwap(nil, fresh)
		m = t.memo.Load()
	}
	home := maphash.String(m.seed, path)
	for i := range uint64(memoProbes) {
		slot := &m.slots[(home+i)%memoPaths]
		r := slot.Load()
		if r == nil {
			return t.remember(m, slot, path)
		}
		if r.path == path {
			return r.list
		}
	}
	return nil
}

// Forget makes the Table forget the methods that it has seen, to measure the cost of the
// first RPC of a method.
func (t *Table) Forget() { t.memo.Store(nil) }

// remember finds the routes for a path and stores them in a slot, if that is still free.
func (t *Table) remember(m *memo, slot *atomic.Pointer[remembered], path string) *shortlist {
	if len(path) > memoPathLength {
		return nil
	}
	r := &remembered{path: strings.Clone(path), list: t.shortlist(m, path)}
	slot.CompareAndSwap(nil, r)
	return r.list
}

// shortlist returns the routes that can match a path, or nil if there is no room for them.
// Concurrent RPCs may exceed the bound a little, or build the same list twice.
func (t *Table) shortlist(m *memo, path string) *shortlist {
	all, ok := t.inQuestion(path, m.room.Load())
	if !ok {
		return nil
	}
	// Sharing short ones gains nothing, and they would take the places of long ones.
	place := new(atomic.Pointer[shortlist])
	if len(all) >= minKeyed {
		place = &m.shared[hashOf(all)%memoShared]
	}
	if l := place.Load(); l != nil && slices.Equal(l.all, all) {
		return l
	}
	l := newShortlist(t, slices.Clone(all))
	if m.room.Add(-l.cost()) < 0 {
		m.room.Add(l.cost())
		return nil
	}
	place.CompareAndSwap(nil, l)
	return l
}

// inQuestion returns the routes whose path fits, in order, up to the first one
// for which that is enough. It reports false if they are more than limit.
func (t *Table) inQuestion(path string, limit int64) (routes []entry, ok bool) {
	w := t.walk(path)
	for i := w.next(); i != None; i = w.next() {
		if int64(len(routes)) >= limit {
			return nil, false
		}
		certain := t.at(i).onlyPath()
		if routes = append(routes, newEntry(i, certain)); certain {
			break
		}
	}
	return routes, true
}

// hashOf is FNV-1a over whole entries.
func hashOf(list []entry) uint64 {
	h := uint64(14695981039346656037)
	for _, e := range list {
		h = (h ^ uint64(uint32(e))) * 1099511628211
	}
	return h ^ h>>32
}
