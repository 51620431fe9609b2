package matching

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync/atomic"
)

// Bounds on what a Table remembers.
const (
	memoPaths      = 1 << 10 // number of paths, a power of two
	memoProbes     = 8       // number of slots that a path may be in
	memoPathLength = 1 << 10 // length of the longest path
	memoRoutes     = 1 << 20 // number of routes in all shortlists: 4 MiB
	memoShared     = 1 << 6  // number of shortlists that paths share
)

// memo has the shortlist of each path. With 10,000 routes that differ by a header, or by a
// mix of prefixes, regular expressions and headers, it makes the difference between 0.5 µs
// and 0.2 to 1.4 ms per RPC (BenchmarkRoute); where the path alone decides, between 17 ns
// and 50 to 250 ns. RPCs fill it, and it lives as long as its Table: programs call the same
// few methods again and again. Methods that find it full do without.
type memo struct {
	seed  maphash.Seed
	slots [memoPaths]atomic.Pointer[remembered]
	// shared has shortlists by their hash: where headers distinguish routes, all paths have
	// the same long one (BenchmarkManyMethods: 2 µs, else 3.6 ms).
	shared [memoShared]atomic.Pointer[shortlist]
	room   atomic.Int64 // number of routes that may still be remembered
}

// remembered is immutable.
type remembered struct {
	path string
	// list is nil if there was no room for it.
	list *shortlist
}

// recall returns the shortlist of a path, or nil if there is no room for it.
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

// remember makes the shortlist of a path and stores it in a slot that is free, or was until
// now.
func (t *Table) remember(m *memo, slot *atomic.Pointer[remembered], path string) *shortlist {
	if len(path) > memoPathLength {
		return nil
	}
	r := &remembered{path: strings.Clone(path), list: t.shortlist(m, path)}
	slot.CompareAndSwap(nil, r)
	return r.list
}

// shortlist makes the shortlist of a path, or returns nil if there is no room for it.
// Concurrent RPCs may exceed the bound a little, or build the same list twice.
func (t *Table) shortlist(m *memo, path string) *shortlist {
	all, ok := t.inQuestion(path, m.room.Load())
	if !ok {
		return nil
	}
	// Short ones would only displace long ones.
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

// inQuestion returns the routes whose path matches, in order, up to the first one that has no
// other condition. It reports false if there are more than limit.
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
