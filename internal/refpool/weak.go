package refpool

import (
	"sync"
	"weak"
)

// Weak has values that somebody refers to, by key. The zero Weak is empty. It is safe for concurrent use.
type Weak[K comparable, V any] struct {
	mu     sync.Mutex
	values map[K]weak.Pointer[V]
}

// Get returns the value that all who still refer to one of the key share, or else what make returns.
func (w *Weak[K, V]) Get(key K, make func() *V) *V {
	w.mu.Lock()
	defer w.mu.Unlock()
	for old, v := range w.values {
		if v.Value() == nil {
			delete(w.values, old)
		}
	}
	v := w.values[key].Value()
	if v == nil {
		if w.values == nil {
			w.values = map[K]weak.Pointer[V]{}
		}
		v = make()
		w.values[key] = weak.Make(v)
	}
	return v
}
