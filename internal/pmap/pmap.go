// Package pmap is a persistent map from strings: an immutable value whose changed copies share
// most of it. Snapshots have their clusters in one, so that a change to one of 10,000 clusters
// copies a handful of entries, and the cost of comparing two snapshots is in proportion to
// their differences.
//
// It is not a general collection: it has no defined order, except that the same map always
// iterates in the same order.
package pmap

import (
	"hash/maphash"
	"slices"
)

// A map has a power of two of shards. A change copies the table of shards and one shard. So there are as many as it needs for
// perShard entries in each, up to usualWidth, and from there on as many as it needs for maxShard.
const (
	perShard   = 4
	usualWidth = 256
	maxShard   = 64
)

var seed = maphash.MakeSeed()

type entry[V comparable] struct {
	// hash is that of the key. It distinguishes most keys of a shard without a look at them.
	hash  uint64
	key   string
	value V
}

type shard[V comparable] []entry[V]

// Map is an immutable map. The zero value is empty. It is safe for concurrent use.
type Map[V comparable] struct {
	shards []shard[V]
	n      int
}

func hash(key string) uint64 { return maphash.String(seed, key) }

func (s shard[V]) indexOf(hash uint64, key string) int {
	for i := range s {
		if s[i].hash == hash && s[i].key == key {
			return i
		}
	}
	return -1
}

// Len returns the number of entries.
func (m Map[V]) Len() int { return m.n }

// Get returns the value under key and whether there is one.
func (m Map[V]) Get(key string) (V, bool) {
	if len(m.shards) > 0 {
		h := hash(key)
		s := m.shards[h&uint64(len(m.shards)-1)]
		if i := s.indexOf(h, key); i >= 0 {
			return s[i].value, true
		}
	}
	var zero V
	return zero, false
}

// All calls yield for each entry until it returns false.
func (m Map[V]) All(yield func(string, V) bool) {
	for _, s := range m.shards {
		for _, e := range s {
			if !yield(e.key, e.value) {
				return
			}
		}
	}
}

// Diff calls yield for each key whose presence or value differs between old and m. Shards that
// both have cost one comparison. Maps with different numbers of shards share none.
func (m Map[V]) Diff(old Map[V], yield func(key string, before, after V, had, has bool)) {
	if m.Same(old) {
		return
	}
	a, b := old.widened(len(m.shards)), m.widened(len(old.shards))
	var zero V
	for i := range a {
		if same(a[i], b[i]) {
			continue
		}
		for _, e := range a[i] {
			switch j := b[i].indexOf(e.hash, e.key); {
			case j < 0:
				yield(e.key, e.value, zero, true, false)
			case b[i][j].value != e.value:
				yield(e.key, e.value, b[i][j].value, true, true)
			}
		}
		for _, e := range b[i] {
			if a[i].indexOf(e.hash, e.key) < 0 {
				yield(e.key, zero, e.value, false, true)
			}
		}
	}
}

// Same reports whether m and other are the same map. It does not compare their entries.
func (m Map[V]) Same(other Map[V]) bool {
	return len(m.shards) == len(other.shards) && (len(m.shards) == 0 || &m.shards[0] == &other.shards[0])
}

// widened returns the shards, or those of a copy that has at least as many as given.
func (m Map[V]) widened(width int) []shard[V] {
	if len(m.shards) >= width {
		return m.shards
	}
	wide := make([]shard[V], width)
	for _, s := range m.shards {
		for _, e := range s {
			i := e.hash & uint64(width-1)
			wide[i] = append(wide[i], e)
		}
	}
	return wide
}

func same[V comparable](a, b shard[V]) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// Builder collects changes to a Map. It is not safe for concurrent use.
type Builder[V comparable] struct {
	base Map[V]
	// shards is nil until something changes. Those that differ from those of base are the builder's own.
	shards []shard[V]
	n      int
}

// Edit returns a Builder of a changed copy of m.
func (m Map[V]) Edit() *Builder[V] { return &Builder[V]{base: m, n: m.n} }

// current is the map with the changes so far.
func (b *Builder[V]) current() Map[V] {
	if b.shards != nil {
		return Map[V]{b.shards, b.n}
	}
	return b.base
}

// writable returns the builder's own copy of the shard for a hash.
func (b *Builder[V]) writable(hash uint64) *shard[V] {
	if b.shards == nil {
		b.shards = slices.Clone(b.base.shards)
	}
	i := hash & uint64(len(b.shards)-1)
	if old := b.shards[i]; len(b.shards) == len(b.base.shards) && same(old, b.base.shards[i]) {
		b.shards[i] = append(make(shard[V], 0, len(old)+1), old...)
	}
	return &b.shards[i]
}

// widen makes room for one more entry.
func (b *Builder[V]) widen() {
	width := len(b.current().shards)
	if b.n < perShard*width || width >= usualWidth && b.n < maxShard*width {
		return
	}
	b.shards = b.current().widened(max(1, 2*width))
}

// Get returns the value under key with the changes so far.
func (b *Builder[V]) Get(key string) (V, bool) { return b.current().Get(key) }

// Set sets the value of key. If it has that value already, nothing changes.
func (b *Builder[V]) Set(key string, value V) {
	old, ok := b.Get(key)
	if ok && old == value {
		return
	}
	h := hash(key)
	if ok {
		s := *b.writable(h)
		s[s.indexOf(h, key)].value = value
		return
	}
	b.widen()
	s := b.writable(h)
	*s = append(*s, entry[V]{h, key, value})
	b.n++
}

// Delete removes key, if present.
func (b *Builder[V]) Delete(key string) {
	if _, ok := b.Get(key); !ok {
		return
	}
	h := hash(key)
	s := b.writable(h)
	i := s.indexOf(h, key)
	*s = slices.Delete(*s, i, i+1)
	b.n--
}

// Map returns the result, which is the map that Edit was called on if nothing has changed. The
// Builder remains usable, and then changes a copy of the result.
func (b *Builder[V]) Map() Map[V] {
	m := b.current()
	*b = Builder[V]{base: m, n: m.n}
	return m
}
