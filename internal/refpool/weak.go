package refpool

import (
	"maps"
	"sync"
	"weak"
)

// Weak has values that somebody refers to, by key. The zero Weak is empty. It is safe for concurrent use.
type Weak[K comparable, V any] struct {
	mu     sync.Mutex
	values map[K]weak.Pointer[V]
	// room is how many values there may be until those of no use are removed.
	room int
}

// Get returns the value that all who still refer to one of the key share, or else what make returns.
func (w *Weak[K, V]) Get(key K, make func() *V) *V {
	w.mu.Lock()
	defer w.mu.Unlock()
	if v := w.values[key].Value(); v != nil {
		return v
	}
	if len(w.values) >= w.room {
		maps.DeleteFunc(w.values, func(_ K, v weak.Pointer[V]) bool { return v.Value() == nil })
		w.room = 2*len(w.values) + 1
	}
	if w.values == nil {
		w.values = map[K]weak.Pointer[V]{}
	}
	v := make()
	w.values[key] = weak.Make(v)
	return v
}
