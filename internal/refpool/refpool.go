// Package refpool shares values by key: each is made for its first holder and closed
// after its last one. Clients, constraint wrappers and DNS look-ups are shared so.
package refpool

import "sync"

// Pool has the values that somebody holds. The zero Pool is empty. It is safe for
// concurrent use.
type Pool[K comparable, V any] struct {
	mu      sync.Mutex
	members map[K]*member[V]
}

// member is a value and how many hold it.
type member[V any] struct {
	value   V
	close   func()
	holders int
}

// Acquire returns the value that all holders of the key share. If there is none, make
// makes it, with the function that closes it, while the Pool is locked; an error of make
// is returned, and nothing is kept.
//
// release may be called again, from any goroutine and from within close, but not from
// make. The last one removes the value from the Pool, and then closes it without the
// lock: a later Acquire makes a new value, maybe before the old one is closed.
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
	if last { // nobody can get hold of it any more
		m.close()
	}
}

// Each calls f with each value, in no order and while the Pool is locked: a value that is
// not among them is made after Each has returned.
func (p *Pool[K, V]) Each(f func(K, V)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, m := range p.members {
		f(key, m.value)
	}
}

// Has reports whether somebody holds the value of the key.
func (p *Pool[K, V]) Has(key K) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.members[key] != nil
}
