package controlplane

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	"google.golang.org/grpc/status"
)

// Store holds resources, or the errors in place of them, by type URL and name.
// It is safe for concurrent use.
//
// Its version counts the updates that changed something. Each resource has a
// version of its own, see [Resource.Version].
type Store struct {
	// updates lets one Update run at a time, with its function outside of mu.
	updates sync.Mutex

	// mu guards what follows, each table, and the names of every subscription.
	// It is locked before any stream's mu, never after.
	mu      sync.RWMutex
	version uint64
	tables  map[string]*table
}

// NewStore returns an empty store, of version 0.
func NewStore() *Store { return &Store{tables: map[string]*table{}} }

// Update applies the changes that f collects, all of them or, if any is faulty,
// none. It returns the store's version, which is a new one only if a resource
// or an error appeared, disappeared, or changed its bytes; otherwise nothing is
// pushed.
// The error joins all faults.
//
// Streams never see a part of an update. Update does not wait for them. f must
// not call Update on the same store.
func (s *Store) Update(f func(tx *Tx)) (uint64, error) {
	s.updates.Lock()
	defer s.updates.Unlock()
	tx := &Tx{store: s, changes: map[entryKey]*entry{}}
	f(tx)
	if len(tx.errs) > 0 {
		return s.Version(), fmt.Errorf("store update: %w", errors.Join(tx.errs...))
	}
	return s.apply(tx.changes), nil
}

func (s *Store) apply(changes map[entryKey]*entry) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.version + 1
	for key, e := range changes {
		t := s.tables[key.typeURL]
		if t == nil {
			if e == nil {
				continue
			}
			t = s.table(key.typeURL)
		}
		if t.put(key.name, e, next) {
			s.version = next
		}
	}
	return s.version
}

// Version returns the number of updates so far that changed something.
func (s *Store) Version() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.version
}

// Get returns the resource, or nil if there is none or an error in its place.
func (s *Store) Get(typeURL, name string) *Resource {
	if e := s.entry(typeURL, keyOf(name)); e != nil {
		return e.resource
	}
	return nil
}

// Error returns the error in place of the resource, nil if there is none.
func (s *Store) Error(typeURL, name string) *status.Status {
	if e := s.entry(typeURL, keyOf(name)); e != nil && e.err != nil {
		return e.err.status
	}
	return nil
}

func (s *Store) entry(typeURL string, key nameKey) *entry {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if t := s.tables[typeURL]; t != nil {
		return t.entries[key]
	}
	return nil
}

// keys returns the names of a type's resources and errors, in no order.
func (s *Store) keys(typeURL string) []nameKey {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if t := s.tables[typeURL]; t != nil {
		return slices.Collect(maps.Keys(t.entries))
	}
	return nil
}

// Resources returns all resources of a type, ordered by name. The slice must
// not be changed.
func (s *Store) Resources(typeURL string) []*Resource {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if t := s.tables[typeURL]; t != nil {
		return t.all()
	}
	return nil
}

// table returns the table of a type, made if there is none. The caller holds
// mu.
func (s *Store) table(typeURL string) *table {
	t := s.tables[typeURL]
	if t == nil {
		t = newTable(typeURL)
		s.tables[typeURL] = t
	}
	return t
}

// resubscribe changes what sub asks for, and notes what that makes due.
func (s *Store) resubscribe(sub *subscription, change subscriptionChange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sub.stream.released {
		return
	}
	t := s.table(sub.typeURL)
	for key := range change.removed {
		delete(sub.names, key)
		t.setSubscribed(key, sub, false)
	}
	for key, name := range change.added {
		sub.names[key] = name
		t.setSubscribed(key, sub, true)
	}
	before := sub.interest
	sub.interest = change.interest
	t.setWildcard(sub, change.interest.wildcard())
	s.dropIfUnused(t)
	sub.due(change, before)
}

// release forgets all that a stream asked for, for good.
func (s *Store) release(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.released = true
	st.mu.Lock()
	subs := slices.Collect(maps.Values(st.subs))
	st.mu.Unlock()
	for _, sub := range subs {
		t := s.tables[sub.typeURL]
		if t == nil {
			continue
		}
		for key := range sub.names {
			t.setSubscribed(key, sub, false)
		}
		t.setWildcard(sub, false)
		s.dropIfUnused(t)
	}
}

// dropIfUnused keeps clients from filling the store with types of their own
// invention.
func (s *Store) dropIfUnused(t *table) {
	if t.version == 0 && len(t.byName) == 0 && len(t.byWildcard) == 0 {
		delete(s.tables, t.typeURL)
	}
}

func formatVersion(v uint64) string { return strconv.FormatUint(v, 10) }
