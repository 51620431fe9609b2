package controlplane

import (
	"cmp"
	"slices"
	"sync"
)

// table holds the resources of one type and the index of who asked for them.
// Store.mu guards it.
type table struct {
	typeURL string
	// version is the store's version when a resource of the type last changed,
	// 0 if there never was one.
	version   uint64
	resources map[string]*Resource
	// listing computes all, once per change.
	listing func() []*Resource
	// byName has the subscriptions to each name, of a resource or not.
	byName     map[string]map[*subscription]struct{}
	byWildcard map[*subscription]struct{}
}

func newTable(typeURL string) *table {
	t := &table{
		typeURL:    typeURL,
		resources:  map[string]*Resource{},
		byName:     map[string]map[*subscription]struct{}{},
		byWildcard: map[*subscription]struct{}{},
	}
	t.resetListing()
	return t
}

// put stores r, or deletes the resource if r is nil, and tells the
// subscriptions. It returns whether that changed anything.
func (t *table) put(name string, r *Resource, version uint64) bool {
	old := t.resources[name]
	if old == nil && r == nil || old.sameBytes(r) {
		return false
	}
	if r == nil {
		delete(t.resources, name)
	} else {
		t.resources[name] = r
	}
	t.version = version
	t.resetListing()
	for sub := range t.byName[name] {
		sub.changed(name)
	}
	for sub := range t.byWildcard {
		sub.changed(name)
	}
	return true
}

// all returns the resources ordered by name, in a slice that is shared. The
// caller holds Store.mu, reading or writing.
func (t *table) all() []*Resource { return t.listing() }

func (t *table) resetListing() {
	t.listing = sync.OnceValue(func() []*Resource {
		all := make([]*Resource, 0, len(t.resources))
		for _, r := range t.resources {
			all = append(all, r)
		}
		slices.SortFunc(all, byName)
		return all
	})
}

func byName(a, b *Resource) int { return cmp.Compare(a.name, b.name) }

func (t *table) subscribe(name string, sub *subscription) {
	subs := t.byName[name]
	if subs == nil {
		subs = map[*subscription]struct{}{}
		t.byName[name] = subs
	}
	subs[sub] = struct{}{}
}

func (t *table) unsubscribe(name string, sub *subscription) {
	subs := t.byName[name]
	delete(subs, sub)
	if len(subs) == 0 {
		delete(t.byName, name)
	}
}

func (t *table) setWildcard(sub *subscription, on bool) {
	if on {
		t.byWildcard[sub] = struct{}{}
	} else {
		delete(t.byWildcard, sub)
	}
}
