package xdsclient

import (
	"bytes"
	"iter"
	"maps"
	"slices"

	"github.com/dynxds/dynxds/internal/xdsname"
)

// subscriptions finds subscriptions by name. Subscriptions to one name, which differ in their
// constraints, or in the variant that a member is, are chained; most often there is one. One without
// constraints or parameters is the first of its chain. A nil *subscriptions has none.
type subscriptions struct {
	first map[string]*subscription
	// variants finds the others, of which a name may have many.
	variants map[resourceKey]*subscription
	// size is how many there are.
	size int
}

func newSubscriptions() *subscriptions {
	return &subscriptions{first: make(map[string]*subscription), variants: make(map[resourceKey]*subscription)}
}

// get returns the subscription with the key, or nil.
func (m *subscriptions) get(key resourceKey) *subscription {
	if key.variant != "" {
		return m.variants[key]
	}
	if first := m.first[key.name]; first != nil && first.resource.key.variant == "" {
		return first
	}
	return nil
}

// named returns the first of the subscriptions to a name as a server writes it, or nil.
func (m *subscriptions) named(name []byte) *subscription {
	s := m.first[string(name)] // does not copy
	if s == nil && bytes.HasPrefix(name, []byte(xdsname.Prefix)) {
		s = m.first[xdsname.Canonical(string(name))]
	}
	return s
}

// add adds a subscription. There is none with its key.
func (m *subscriptions) add(s *subscription) {
	key := s.resource.key
	first := m.first[key.name]
	if first != nil && first.resource.key.variant == "" {
		s.prev, s.next = first, first.next
		first.next = s
	} else {
		s.next = first
		m.first[key.name] = s
	}
	if s.next != nil {
		s.next.prev = s
	}
	if key.variant != "" {
		m.variants[key] = s
	}
	m.size++
}

// remove takes a subscription out.
func (m *subscriptions) remove(s *subscription) {
	switch name := s.resource.key.name; {
	case s.prev != nil:
		s.prev.next = s.next
	case s.next == nil:
		delete(m.first, name)
	default:
		m.first[name] = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	}
	s.next, s.prev = nil, nil
	delete(m.variants, s.resource.key)
	m.size--
}

// all iterates the subscriptions. The one that was yielded may be removed.
func (m *subscriptions) all() iter.Seq[*subscription] {
	return func(yield func(*subscription) bool) {
		if m == nil {
			return
		}
		for _, first := range m.first {
			for s := range first.siblings() {
				if !yield(s) {
					return
				}
			}
		}
	}
}

// inOrder iterates the subscriptions in their order in requests. To sort names is ten times as fast as to sort subscriptions.
func (m *subscriptions) inOrder() iter.Seq[*subscription] {
	return func(yield func(*subscription) bool) {
		for _, name := range slices.Sorted(maps.Keys(m.first)) {
			all := []*subscription{m.first[name]}
			if all[0].next != nil {
				all = slices.SortedFunc(all[0].siblings(), byLocator)
			}
			for _, s := range all {
				if !yield(s) {
					return
				}
			}
		}
	}
}

// siblings iterates the subscription, which may be nil, and its successors with the same name.
func (s *subscription) siblings() iter.Seq[*subscription] {
	return func(yield func(*subscription) bool) {
		for at := s; at != nil; {
			next := at.next // the one that is yielded may leave
			if !yield(at) {
				return
			}
			at = next
		}
	}
}
