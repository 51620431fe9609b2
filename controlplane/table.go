package controlplane

import (
	"cmp"
	"slices"
	"sync"
)

// table holds the entries of one type and the index of who asked for them.
// Store.mu guards it.
type table struct {
	typeURL string
	// version is the store's version when an entry of the type last changed, 0
	// if there never was one.
	version uint64
	entries map[nameKey]*entry
	// members has the keys of the entries in each glob collection.
	members map[string]map[nameKey]struct{}
	// listing computes all, once per change.
	listing func() []*Resource
	// byName has the subscriptions to each name: of an entry, of nothing yet,
	// or of a glob collection.
	byName     map[nameKey]map[*subscription]struct{}
	byWildcard map[*subscription]struct{}
}

func newTable(typeURL string) *table {
	t := &table{
		typeURL:    typeURL,
		entries:    map[nameKey]*entry{},
		members:    map[string]map[nameKey]struct{}{},
		byName:     map[nameKey]map[*subscription]struct{}{},
		byWildcard: map[*subscription]struct{}{},
	}
	t.resetListing()
	return t
}

// put stores e, or deletes the entry if e is nil, and tells the subscriptions.
// It returns whether that changed anything.
func (t *table) put(key nameKey, e *entry, version uint64) bool {
	if t.entries[key].sameBytes(e) {
		return false
	}
	if e == nil {
		delete(t.entries, key)
	} else {
		t.entries[key] = e
	}
	t.indexMember(key, e != nil)
	t.version = version
	t.resetListing()
	for sub := range t.byName[key] {
		sub.changed(key, e != nil)
	}
	if key.collection != "" && !key.isGlob() {
		for sub := range t.byName[key.glob()] {
			sub.memberChanged(key, e != nil)
		}
	}
	for sub := range t.byWildcard {
		sub.changed(key, e != nil)
	}
	return true
}

// indexMember keeps members in step with entries.
func (t *table) indexMember(key nameKey, exists bool) {
	if key.collection == "" || key.isGlob() {
		return
	}
	addTo(t.members, key.collection, key, exists)
}

// resource returns the resource under a name, nil if there is none or an error
// in its place.
func (t *table) resource(key nameKey) *Resource {
	if e := t.entries[key]; e != nil {
		return e.resource
	}
	return nil
}

// all returns the resources ordered by name, in a slice that is shared. The
// caller holds Store.mu, reading or writing.
func (t *table) all() []*Resource { return t.listing() }

func (t *table) resetListing() {
	t.listing = sync.OnceValue(func() []*Resource {
		all := make([]*Resource, 0, len(t.entries))
		for _, e := range t.entries {
			if e.resource != nil {
				all = append(all, e.resource)
			}
		}
		slices.SortFunc(all, byName)
		return all
	})
}

func byName(a, b *Resource) int { return cmp.Compare(a.name, b.name) }

func (t *table) setSubscribed(key nameKey, sub *subscription, on bool) {
	addTo(t.byName, key, sub, on)
}

func (t *table) setWildcard(sub *subscription, on bool) {
	if on {
		t.byWildcard[sub] = struct{}{}
	} else {
		delete(t.byWildcard, sub)
	}
}

// addTo puts value into the set under key, or takes it out of it. There are no
// empty sets.
func addTo[K, V comparable](sets map[K]map[V]struct{}, key K, value V, on bool) {
	set := sets[key]
	switch {
	case !on:
		delete(set, value)
		if len(set) == 0 {
			delete(sets, key)
		}
	case set == nil:
		sets[key] = map[V]struct{}{value: {}}
	default:
		set[value] = struct{}{}
	}
}
