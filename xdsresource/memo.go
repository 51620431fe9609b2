package xdsresource

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync/atomic"
)

// Bounds on what a routeTable remembers.
const (
	// memoPaths is the number of paths, a power of two.
	memoPaths = 1 << 10
	// memoProbes is the number of places that a path may be at.
	memoProbes = 8
	// memoPathLength is the length of the longest path that is remembered.
	memoPathLength = 1 << 10
	// memoRoutes is the number of routes over all paths: 4 MiB.
	memoRoutes = 1 << 20
)

// memo remembers for each path which routes it leaves in question. It is
// filled while RPCs come and never emptied: it lives as long as its
// routeTable, and programs call the same few methods again and again. When it
// is full, RPCs of further methods do without.
type memo struct {
	seed  maphash.Seed
	slots [memoPaths]atomic.Pointer[remembered]
	// room is how many routes may still be remembered.
	room atomic.Int64
}

// remembered is immutable.
type remembered struct {
	path string
	// routes are those whose path fits, in order, up to the first one for
	// which that is enough.
	routes []int32
	// tooMany says that there was no room for them.
	tooMany bool
}

// recall returns the routes that a path leaves in question. It reports false
// if the path is not remembered and cannot be.
func (t *routeTable) recall(path string) ([]int32, bool) {
	m := t.memo.Load()
	if m == nil {
		if len(t.routes) == 0 {
			return nil, true
		}
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
			return r.routes, !r.tooMany
		}
	}
	return nil, false
}

// remember finds the routes for a path and puts them into a slot, if that is
// still free.
func (t *routeTable) remember(m *memo, slot *atomic.Pointer[remembered], path string) ([]int32, bool) {
	if len(path) > memoPathLength {
		return nil, false
	}
	r := &remembered{path: strings.Clone(path)}
	r.routes, r.tooMany = t.inQuestion(path, m.room.Load())
	// RPCs that come here at once may overdraw a little; then there is no
	// more room.
	if slot.CompareAndSwap(nil, r) {
		m.room.Add(-int64(len(r.routes)))
	}
	return r.routes, !r.tooMany
}

// inQuestion returns the routes that a path leaves in question, or nothing if
// they are more than limit.
func (t *routeTable) inQuestion(path string, limit int64) (routes []int32, tooMany bool) {
	w := t.walk(path)
	for i := w.next(); i != noRoute; i = w.next() {
		if int64(len(routes)) >= limit {
			return nil, true
		}
		routes = append(routes, i)
		if t.routes[i].Match.onlyPath() {
			break
		}
	}
	return slices.Clone(routes), false
}
