package controlplane

import (
	"cmp"
	"slices"
)

// namedAsk is an ask with the client's spelling of its name.
type namedAsk struct {
	name string
	ask  *ask
}

// asksInOrder returns the asks for names other than the wildcard, ordered by name. The stream's
// sender calls it, with Store.mu held for reading.
func (s *selection) asksInOrder() []*ask {
	if s.inOrder == nil {
		named := make([]namedAsk, 0, s.names.len())
		for a := range s.asks() {
			named = append(named, namedAsk{s.locator(a).name, a})
		}
		s.inOrder = s.sorted(named)
	}
	return s.inOrder
}

func (s *selection) sorted(named []namedAsk) []*ask {
	named = slices.DeleteFunc(named, func(n namedAsk) bool { return s.isWildcard(s.topicOf(n.ask)) })
	slices.SortFunc(named, func(a, b namedAsk) int { return cmp.Compare(a.name, b.name) })
	asks := make([]*ask, len(named))
	for i, n := range named {
		asks[i] = n.ask
	}
	return asks
}

// sortNames prepares asksInOrder without a lock, where the client has many names. Only the stream's sender calls it.
func (p *sotw) sortNames() {
	for _, sub := range p.unsorted() {
		for done := false; !done; {
			version, named := p.namesOf(sub)
			asks := sub.sorted(named)
			p.store.mu.RLock()
			if done = version == sub.namesVersion; done {
				sub.inOrder = asks
			}
			p.store.mu.RUnlock()
		}
	}
}

// unsorted returns the due subscriptions to complete types with names that are not sorted, and many.
func (p *sotw) unsorted() (subs []*subscription) {
	p.store.mu.RLock()
	defer p.store.mu.RUnlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, sub := range p.dueSubs {
		if sub.mode == pushAll && sub.settling == 0 && sub.inOrder == nil && sub.names.len() > p.store.pace.due {
			subs = append(subs, sub)
		}
	}
	return subs
}

// namesOf returns the names of a subscription, and their version.
func (p *sotw) namesOf(sub *subscription) (version uint64, named []namedAsk) {
	p.tab.enter()
	defer p.tab.leave()
	for {
		p.store.mu.RLock()
		version = sub.namesVersion
		p.store.mu.RUnlock()
		named = named[:0]
		if (comparison{sub}).eachAsk(p.tab, func(a *ask) { named = append(named, namedAsk{sub.locator(a).name, a}) }) {
			return version, named
		}
	}
}
