package controlplane

import (
	"cmp"
	"slices"
	"sync"

	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// table holds the resources of one type and the index of its subscriptions. Store.mu guards it.
type table struct {
	typeURL string
	// version is the store's version at the last change of the type, 0 if there was none.
	version uint64
	// slots are not empty.
	slots map[nameKey]*slot
	// members has the names in each glob collection, and under "" the old-style names, which a wildcard covers.
	members map[string]map[nameKey]struct{}
	// asks has the subscriptions to each name (of a resource, existing or not, or of a glob
	// collection) and to the wildcard, one for each constraints, in no order. crowds has the same by the keys
	// of the constraints, for names with many.
	asks   shrinkingMap[nameKey, []*ask]
	crowds map[nameKey]map[string]*ask
	index  index
	// store has the table. source answers the subscriptions, nil if the slots do.
	store  *Store
	source *sourceOf
}

func newTable(s *Store, typeURL string) *table {
	return &table{
		typeURL: typeURL,
		store:   s,
		source:  cmp.Or(s.sources[typeURL], s.sources[""]),
		slots:   map[nameKey]*slot{},
		members: map[string]map[nameKey]struct{}{},
		crowds:  map[nameKey]map[string]*ask{},
	}
}

// choose is slot.choose, with ambiguous choices counted.
func (t *table) choose(s *slot, c dynparam.Constraints) *entry {
	chosen, ambiguous := s.choose(c)
	if ambiguous {
		t.store.ambiguous.Add(1)
	}
	return chosen
}

// put replaces the slot of a name and notifies the subscriptions. It reports whether anything
// changed.
func (t *table) put(key nameKey, s *slot, version uint64) bool {
	before := t.slots[key]
	changes := s.changes(before)
	if len(changes) == 0 {
		return false
	}
	if len(s.entries) == 0 {
		delete(t.slots, key)
	} else {
		t.slots[key] = s
	}
	t.indexMember(key, len(s.entries) > 0)
	t.version = version
	for _, a := range t.asks.m[key] {
		a.notify(s, changes)
	}
	for _, a := range t.collectionAsks(key) {
		a.lists = new(lists)
		a.notifyOf(key, before, s, changes)
	}
	return true
}

// notify notifies the subscriptions of changes of the name itself.
func (a *ask) notify(s *slot, changes []variantChange) {
	if a.name == wildcardKey && hasWildcard(a.table.typeURL) {
		return
	}
	old := a.choice
	a.follow(s, changes)
	if a.choice == old {
		return
	}
	for sub := range a.subscriptions() {
		sub.entryChanged(a, old, a.choice != nil)
	}
}

// collectionAsks returns the asks for the collection that a name is a member of: its glob or, for an old-style name, the wildcard.
func (t *table) collectionAsks(key nameKey) []*ask {
	if key.isGlob() || key.collection == "" && !hasWildcard(t.typeURL) {
		return nil
	}
	return t.asks.m[key.glob()]
}

// notifyOf notifies the subscriptions to the collection of changes of a member, which was before, and now is s.
func (a *ask) notifyOf(key nameKey, before, s *slot, changes []variantChange) {
	if a.refused != nil {
		return
	}
	choices := sync.OnceValues(func() (was, now *entry) {
		was, _ = before.choose(a.constraints)
		return was, a.table.choose(s, a.constraints)
	})
	for sub := range a.subscriptions() {
		if a.name.isGlob() && sub.mode != pushDifference {
			continue
		}
		if sub.addressing == byNames {
			if was, now := choices(); now != was {
				sub.changed(topic{name: key}, now != nil, was)
			}
			continue
		}
		inError := s.inError()
		if inError {
			sub.endRetainedIf(func(tp topic, _ *entry) bool { return tp.name == key })
		}
		for _, change := range changes {
			of := cmp.Or(change.now, change.old).parameters()
			if !a.constraints.Match(of) {
				continue
			}
			deleted := change.old
			if inError {
				deleted = nil // the error replaces it
			}
			sub.changed(variantTopic(key, of), change.now != nil, deleted)
		}
	}
}

// entries returns the variants under a name.
func (t *table) entries(key nameKey) []*entry {
	if s := t.slots[key]; s != nil {
		return s.entries
	}
	return nil
}

// indexMember updates members for a name of slots.
func (t *table) indexMember(key nameKey, exists bool) {
	if key.isGlob() || key.collection == "" && !hasWildcard(t.typeURL) {
		return
	}
	members := t.members[key.collection]
	switch {
	case exists && members == nil:
		t.members[key.collection] = map[nameKey]struct{}{key: {}}
	case exists:
		members[key] = struct{}{}
	default:
		if delete(members, key); len(members) == 0 {
			delete(t.members, key.collection)
		}
	}
}

// resources returns the resources that match.
func (s *slot) resources(c dynparam.Constraints) []*Resource {
	if s == nil {
		return nil
	}
	var matching []*Resource
	for _, e := range s.entries {
		if e.resource != nil && c.Match(e.parameters()) {
			matching = append(matching, e.resource)
		}
	}
	return matching
}

// byName orders resources by name, and the variants of one by parameters.
func byName(a, b *Resource) int {
	if order := cmp.Compare(a.name, b.name); order != 0 {
		return order
	}
	return cmp.Compare(a.parameters.Key(), b.parameters.Key())
}

// lists keeps the resources that a wildcard covers, ordered by name, once a subscription has needed them. All subscriptions to the wildcard
// share the slices, of which each addressing has its own.
type lists struct {
	mu sync.Mutex
	of [2][]*Resource
}

// maxLists bounds the wildcards whose lists are kept: clients choose the constraints.
const maxLists = 64

// list returns the resources of a wildcard's subscriptions. The caller holds Store.mu.
func (a *ask) list(d addressing) []*Resource {
	if len(a.table.asks.m[a.name]) > maxLists {
		return a.table.list(d, a.constraints)
	}
	l := a.lists
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of[d] == nil {
		l.of[d] = a.table.list(d, a.constraints)
	}
	return l.of[d]
}

func (t *table) list(d addressing, c dynparam.Constraints) []*Resource {
	found := make([]*Resource, 0, len(t.members[""]))
	for key := range t.members[""] {
		s := t.slots[key]
		if d == byLocators {
			found = append(found, s.resources(c)...)
		} else if e := t.choose(s, c); e != nil && e.resource != nil {
			found = append(found, e.resource)
		}
	}
	slices.SortFunc(found, byName)
	return found
}
