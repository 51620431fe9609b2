package controlplane

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// Store holds resources, or errors in place of them, by type URL, name and dynamic parameters (xRFC
// TP2). It is safe for concurrent use.
//
// Its version counts the updates that changed something. Each variant has its own version; see
// [Resource.Version].
type Store struct {
	// updates serializes calls of Update, whose function runs outside of mu, and computing those of the functions of Tx.SetDPDS.
	updates, computing sync.Mutex

	// mu guards the fields below, each table, and the selections of subscriptions. It is
	// locked before any stream's mu, never after.
	mu sync.RWMutex
	// queue lets one turn of work of a size that clients chose wait for mu at a time. It is locked before mu.
	queue   sync.Mutex
	version uint64
	// updating is when the update began that is being applied, zero between updates.
	updating time.Time
	tables   map[string]*table

	// sources answer the subscriptions to types, that of "" those to all others. notifying is set while a goroutine notifies them.
	sources   map[string]*sourceOf
	notifying bool

	// pace is constant.
	pace pace

	// ambiguous counts the choices between variants that TP2 leaves open.
	ambiguous atomic.Uint64
}

// NewStore returns an empty store, of version 0.
func NewStore() *Store {
	return &Store{tables: map[string]*table{}, sources: map[string]*sourceOf{}, pace: usualPace}
}

// Update applies the changes that f collects, all of them or, if any is invalid, none. It returns
// the store's version, which is new only if a resource or an error was added, removed, or changed
// its bytes; otherwise nothing is pushed. The error joins all errors.
//
// Streams never see a part of an update, and Update does not wait for them. f must not call Update
// on the same store.
func (s *Store) Update(f func(tx *Tx)) (uint64, error) {
	s.updates.Lock()
	defer s.updates.Unlock()
	tx := &Tx{store: s, stored: map[string]map[nameKey]*slot{}, changes: map[slotKey]*slot{}, answers: map[*Demand]*entry{}}
	f(tx)
	if len(tx.errs) > 0 {
		return s.Version(), fmt.Errorf("store update: %w", errors.Join(tx.errs...))
	}
	return s.apply(tx), nil
}

func (s *Store) apply(tx *Tx) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.version + 1
	s.updating = time.Now()
	defer func() { s.updating = time.Time{} }()
	for key, now := range tx.changes {
		if s.tables[key.typeURL] == nil && len(now.entries) == 0 {
			continue
		}
		if s.table(key.typeURL).put(key.name, now, next) {
			s.version = next
		}
	}
	for d, answer := range tx.answers {
		if d.ask.table.store == s && d.answered(answer, next) {
			s.version = next
		}
	}
	for _, r := range tx.renewals {
		s.present(r.typeURL).renew(r.name, r.parameters)
	}
	return s.version
}

// Version returns the number of updates so far that changed something.
func (s *Store) Version() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.version
}

// Get returns the resource without dynamic parameters, nil if there is none or an error in its
// place.
func (s *Store) Get(typeURL, name string) *Resource {
	return s.slot(typeURL, keyOf(name)).variant("").asResource()
}

// Error returns the error in place of the resource without dynamic parameters, or of the whole name,
// nil if there is none.
func (s *Store) Error(typeURL, name string) *status.Status {
	return s.slot(typeURL, keyOf(name)).variant("").asError()
}

// Choose returns the resource or the error for a subscription to a name with these constraints, or
// neither if no variant matches. It does not count in [Server.AmbiguousChoices].
func (s *Store) Choose(typeURL, name string, c dynparam.Constraints) (*Resource, *status.Status) {
	e, _ := s.slot(typeURL, keyOf(name)).choose(c)
	return e.asResource(), e.asError()
}

// Variants returns all variants of a resource, in a stable order.
func (s *Store) Variants(typeURL, name string) []*Resource {
	return s.slot(typeURL, keyOf(name)).resources(dynparam.Constraints{})
}

// slot returns what is stored under a name, nil if there is nothing.
func (s *Store) slot(typeURL string, key nameKey) *slot {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.present(typeURL).slots[key]
}

// Resources returns all variants of all resources of a type, ordered by name, then by parameters.
func (s *Store) Resources(typeURL string) []*Resource {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var all []*Resource
	for _, of := range s.present(typeURL).slots {
		all = append(all, of.resources(dynparam.Constraints{})...)
	}
	slices.SortFunc(all, byName)
	return all
}

// empty is in place of a table that does not exist, for reading.
var empty = new(table)

// present returns the table of a type, to be read only. The caller holds mu.
func (s *Store) present(typeURL string) *table { return cmp.Or(s.tables[typeURL], empty) }

// table returns the table of a type, which is made if there is none. The caller holds mu.
func (s *Store) table(typeURL string) *table {
	t := s.tables[typeURL]
	if t == nil {
		t = newTable(s, typeURL)
		s.tables[typeURL] = t
	}
	return t
}

// dropIfUnused drops the table of a type without resources, subscriptions or demands: clients may request any
// type.
func (s *Store) dropIfUnused(t *table) {
	if len(t.index.subs.of) == 0 && len(t.asks.m) == 0 && (t.version == 0 || t.source != nil && len(t.slots) == 0) {
		delete(s.tables, t.typeURL)
	}
}

func formatVersion(v uint64) string { return strconv.FormatUint(v, 10) }
