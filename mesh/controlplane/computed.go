package controlplane

import (
	"slices"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// A computed resource, for DPDS, is an entry with a function in place of the resource. A stream's sender calls the function when a
// subscription to it is due, and before anything is sent: no change may reach the client before the constraints that it must subscribe with.

// computation is the function of a computed resource.
type computation struct {
	name string
	of   func(node *corepb.Node) (dynparam.ByType, error)
}

// result returns the resource for a client, or the error in its place: the status of the function's error.
func (c *computation) result(node *corepb.Node) *entry {
	constraints, err := c.of(node)
	var r *Resource
	if err == nil {
		r, err = newResource(c.name, nil, constraints.ToProto())
	}
	if err != nil {
		return errorEntry(c.name, statusOf(err))
	}
	return &entry{resource: r}
}

// computed is the result of a computation for one client; awaited before there is one.
type computed struct {
	by    *computation
	entry *entry
}

// compute carries out the computation that takeDue has found, and reports whether there was one. Only the stream's sender calls it.
func (s *stream) compute() bool {
	c := s.computing
	if c == nil {
		return false
	}
	s.computing = nil
	s.store.computing.Lock()
	if s.ctx.Err() != nil {
		s.store.computing.Unlock()
		return false
	}
	result := c.by.result(s.node)
	s.store.computing.Unlock()
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	c.entry, s.store.tables[dynparam.MapTypeURL].version = result, s.store.version
	return true
}

// nextComputed returns what is about to be sent and has no result yet, nil if there is nothing. The caller holds Store.mu for reading, and stream.mu.
func (sub *subscription) nextComputed() *computed {
	sub.items.promote(sub.stream.store.pace.due)
	for tp := range sub.items.now.m {
		if a := sub.askOf(tp); a != nil && a.choice.isComputed() && a.entryOf(sub) == awaited {
			if sub.computed == nil {
				sub.computed = map[nameKey]*computed{}
			}
			c := &computed{a.choice.computed, awaited}
			sub.computed[a.name] = c
			return c
		}
	}
	return nil
}

// RefreshDPDS makes the store call the function of [Tx.SetDPDS] again, without waiting for that:
// for one name or, if it is empty, for all, and for the clients whose nodes affected accepts or, if
// it is nil, for all. Only clients whose answer changed are sent anything. affected is called
// without locks.
func (s *Store) RefreshDPDS(name string, affected func(*corepb.Node) bool) {
	s.mu.RLock()
	subs := slices.Clone(s.present(dynparam.MapTypeURL).index.subs.of)
	s.mu.RUnlock()
	for _, sub := range subs {
		if sub != nil && (affected == nil || affected(sub.stream.node)) {
			s.computeAgain(sub, name)
		}
	}
}

// computeAgain has what was computed for a subscription, or is being computed, computed again.
func (s *Store) computeAgain(sub *subscription, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range sub.computed {
		if name == "" || key == keyOf(name) {
			for a := range sub.asksFor(key) {
				sub.entryChanged(a, a.entryOf(sub), true)
			}
			delete(sub.computed, key)
		}
	}
}
