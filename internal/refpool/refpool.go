// Package refpool shares values by key. A value is made for its first holder and closed after
// its last. Clients and constraint wrappers are shared in this way.
package refpool

import "sync"

// Pool has the values with holders. The zero Pool is empty. It is safe for concurrent use.
type Pool[K comparable, V any] struct {
	mu      sync.Mutex
	members map[K]*member[V]
}

// member is a value and the number of its holders.
type member[V any] struct {
	value   V
	close   func()
	holders int
}

// Acquire returns the value that all holders of the key share. If there is none, it calls make,
// with the Pool locked, for the value and the function that closes it. An error of make is
// returned, and nothing is kept.
//
// release is idempotent, and may be called from any goroutine and from within close, but not
// from make. The last release removes the value from the Pool, and then closes it without the
// lock: a concurrent Acquire may make a new value before the old one is closed.
func (p *Pool[K, V]) Acquire(key K, make func() (value V, close func(), err error)) (value V, release func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.members[key]
	if m == nil {
		value, close, err := make()
		if err != nil {
			return value, nil, err
		}
		if p.members == nil {
			p.members = map[K]*member[V]{}
		}
		m = &member[V]{value: value, close: close}
		p.members[key] = m
	}
	m.holders++
	return m.value, sync.OnceFunc(func() { p.release(key, m) }), nil
}

func (p *Pool[K, V]) release(key K, m *member[V]) {
	p.mu.Lock()
	m.holders--
	last := m.holders == 0
	if last {
		delete(p.members, key)
	}
	p.mu.Unlock()
	if last { // it cannot be acquired any more
		m.close()
	}
}

// Each calls f with each value, in no order, with the Pool locked: values that it misses are
// made after Each has returned.
func (p *Pool[K, V]) Each(f func(K, V)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, m := range p.members {
		f(key, m.value)
	}
}
