package matching

import (
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Bounds on what a Table remembers.
const (
	memoPaths      = 1 << 10 // number of paths
	memoProbes     = 8       // number of slots that a path may be in
	memoPathLength = 1 << 10 // length of the longest path
	memoRoutes     = 1 << 20 // number of routes in all shortlists: 4 MiB; more if an index of all routes needs that
	memoRetry      = 1 << 8  // number of RPCs of a path without a shortlist after which it may get one
	memoOneByOne   = 1 << 12 // number of routes of a Table from which one shortlist is made at a time
)

// memo has the shortlist of each path. With 10,000 routes that differ by a header, or by a
// mix of prefixes, regular expressions and headers, it makes the difference between 0.5 µs
// and 0.2 to 1.4 ms per RPC (BenchmarkRoute); where the path alone decides, between 17 ns
// and 50 to 250 ns. RPCs fill it, and it lives as long as its Table. A path that finds it full takes the
// place of one that no RPC has had for some time (second chance):
//
//	RPCs of 2,000 paths, once each:  1,024 are remembered, none of them marked as used
//	RPCs of path /a:                 /a takes the place of one of those; the second RPC marks it
//	RPCs of 2,000 others, once each: they take each other's places, not that of /a
//
// An RPC whose path is remembered writes nothing but the mark, once, and takes no lock.
type memo struct {
	seed  maphash.Seed
	slots [memoPaths]atomic.Pointer[remembered]

	// mu is taken by the first RPC of a path, to store what it has found out. It is held for a moment,
	// and not while routes are matched.
	mu sync.Mutex
	// making is held while a shortlist of a large Table is made. RPCs do not wait for it.
	making sync.Mutex
	// room is the number of routes that may still be remembered.
	room int64
	// shared has long shortlists by their hash: where headers distinguish routes, all paths have
	// the same one (BenchmarkManyMethods: 2 µs, else 3.6 ms).
	shared map[uint64]*shortlist
}

// remembered is a path. Only the atomics change.
type remembered struct {
	path string
	// list is nil if there was no room for it.
	list *shortlist
	// used says that there was an RPC since the path was stored or last spared.
	used atomic.Bool
	// without counts the RPCs without a list.
	without atomic.Uint32
}

// recall returns the shortlist of a path, or nil if there is no room for it.
func (t *Table) recall(path string) *shortlist {
	m := t.memo.Load()
	if m == nil {
		fresh := &memo{seed: maphash.MakeSeed(), room: max(memoRoutes, keyedCost*int64(len(t.next))), shared: make(map[uint64]*shortlist)}
		t.memo.CompareAndSwap(nil, fresh)
		m = t.memo.Load()
	}
	home := maphash.String(m.seed, path)
	for i := range uint64(memoProbes) {
		r := m.slot(home, i).Load()
		if r == nil || r.path != path {
			continue
		}
		if r.list == nil && r.without.Add(1)%memoRetry == 0 {
			break
		}
		if !r.used.Load() {
			r.used.Store(true)
		}
		return r.list
	}
	return t.remember(m, home, path)
}

func (m *memo) slot(home, probe uint64) *atomic.Pointer[remembered] {
	return &m.slots[(home+probe)%memoPaths]
}

// Forget makes the Table forget the methods that it has seen, to measure the cost of the
// first RPC of a method.
func (t *Table) Forget() { t.memo.Store(nil) }

// remember makes the shortlist of a path, stores it and returns it, or nil if it would be too long. In a large Table it
// takes long, and is not done by several RPCs at a time: the others do without, as the method may be the same.
func (t *Table) remember(m *memo, home uint64, path string) *shortlist {
	if len(path) > memoPathLength {
		return nil
	}
	if len(t.next) >= memoOneByOne {
		if !m.making.TryLock() {
			return nil
		}
		defer m.making.Unlock()
	}
	var l *shortlist
	if all, ok := t.inQuestion(path, memoRoutes); ok {
		hash := hashOf(all)
		if l = m.find(hash, all); l == nil {
			l = newShortlist(t, slices.Clone(all))
			l.hash = hash
		}
	}
	m.store(home, strings.Clone(path), l)
	return l
}

// find returns the shared shortlist of the given entries, or nil.
func (m *memo) find(hash uint64, all []entry) *shortlist {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.shared[hash]; l != nil && slices.Equal(l.all, all) {
		return l
	}
	return nil
}

// store stores a path with its shortlist, or without it if there is no room.
func (m *memo) store(home uint64, path string, l *shortlist) {
	m.mu.Lock()
	defer m.mu.Unlock()
	slot := m.placeLocked(home, path)
	if r := slot.Load(); r != nil && r.path == path {
		if r.list != nil {
			return // another RPC was faster
		}
		m.sweepLocked()
	}
	m.evictLocked(slot)
	if l != nil {
		l = m.keepLocked(l)
	}
	slot.Store(&remembered{path: path, list: l})
}

// placeLocked returns the slot that a path is in, or else one that it may have.
func (m *memo) placeLocked(home uint64, path string) *atomic.Pointer[remembered] {
	var free, unused *atomic.Pointer[remembered]
	for i := range uint64(memoProbes) {
		slot := m.slot(home, i)
		switch r := slot.Load(); {
		case r == nil:
			free = slot
		case r.path == path:
			return slot
		case !r.used.Load():
			unused = slot
		}
	}
	switch {
	case free != nil:
		return free
	case unused != nil:
		return unused
	}
	for i := range uint64(memoProbes) {
		m.slot(home, i).Load().used.Store(false)
	}
	return m.slot(home, rand.Uint64N(memoProbes))
}

func (m *memo) evictLocked(slot *atomic.Pointer[remembered]) {
	r := slot.Load()
	if r == nil {
		return
	}
	slot.Store(nil)
	l := r.list
	if l == nil {
		return
	}
	if l.paths--; l.paths == 0 {
		m.room += l.cost()
		if m.shared[l.hash] == l {
			delete(m.shared, l.hash)
		}
	}
}

// keepLocked takes the room for a shortlist, and returns that or an equal one which is there already. It
// returns nil if the paths that are in use leave no room.
func (m *memo) keepLocked(l *shortlist) *shortlist {
	if same := m.shared[l.hash]; same != nil && slices.Equal(same.all, l.all) {
		l = same
	}
	if l.paths == 0 {
		if m.room < l.cost() {
			return nil
		}
		m.room -= l.cost()
		if len(l.all) >= minKeyed && m.shared[l.hash] == nil {
			m.shared[l.hash] = l
		}
	}
	l.paths++
	return l
}

// sweepLocked removes the paths that no RPC has had since the last time, to make room for a path that
// many RPCs have. It is not done for each new path: with more than there is room for, each called in turn, all
// would lose their places again and again.
func (m *memo) sweepLocked() {
	for i := range m.slots {
		if r := m.slots[i].Load(); r != nil && !r.used.Swap(false) {
			m.evictLocked(&m.slots[i])
		}
	}
}

// inQuestion returns the routes whose path matches, in order, up to the first one that has no
// other condition. It reports false if there are more than limit.
func (t *Table) inQuestion(path string, limit int) (routes []entry, ok bool) {
	w := t.walk(path)
	for i := w.next(); i != None; i = w.next() {
		if len(routes) >= limit {
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
