package controlplane

import (
	"maps"
	"slices"
	"sync/atomic"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// nodeConstraints are the constraints of clients that send none.
type nodeConstraints struct {
	// of is nil if there are none.
	of func(*corepb.Node) dynparam.ByType
	// epoch counts the calls of RefreshNodeConstraints.
	epoch atomic.Uint64
}

// RefreshNodeConstraints calls [Options.NodeConstraints] again for the streams whose nodes affected
// accepts or, if it is nil, for all. Clients are sent only resources of which they now get another
// variant.
func (s *Server) RefreshNodeConstraints(affected func(*corepb.Node) bool) {
	if s.constraints.of == nil {
		return
	}
	s.constraints.epoch.Add(1)
	s.mu.Lock()
	streams := slices.Collect(maps.Values(s.streams))
	s.mu.Unlock()
	for _, st := range streams {
		// A stream that has not been greeted will see the new epoch.
		if node, greeted := st.greeting(); greeted && (affected == nil || affected(node)) {
			st.constrain()
		}
	}
}

func (s *stream) greeting() (*corepb.Node, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.node, s.greeted
}

// constrain updates the constraints of the stream by its node. The caller holds no lock.
func (s *stream) constrain() {
	if s.of == nil || s.of.of == nil {
		return
	}
	s.constraining.Lock()
	defer s.constraining.Unlock()
	for {
		epoch := s.of.epoch.Load()
		s.store.constrain(s, s.of.of(s.node))
		if epoch == s.of.epoch.Load() {
			return
		}
	}
}

// constrain changes the constraints of a stream's subscriptions by names.
func (s *Store) constrain(st *stream, implicit dynparam.ByType) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.released {
		return
	}
	st.mu.Lock()
	st.implicit = implicit
	subs := slices.Collect(maps.Values(st.subs))
	st.mu.Unlock()
	for _, sub := range subs {
		if sub.dialect == byNames && sub.typeURL != dynparam.MapTypeURL {
			s.table(sub.typeURL).constrain(sub, implicit.For(sub.typeURL))
		}
	}
}

// constrain moves a subscription to other constraints, and records what that changes.
func (t *table) constrain(sub *subscription, now dynparam.Constraints) {
	before := sub.implicit
	if before.Equal(now) {
		return
	}
	old := t.answersTo(sub)
	var left []nameKey
	if sub.interest.wildcard() {
		left = append(left, wildcardKey)
	}
	for tp := range sub.names {
		left = append(left, tp.name)
	}
	// Join before leaving: a name without any ask is dropped.
	for _, key := range left {
		a := t.join(sub, key, now.Key(), locator{name: sub.names[topic{name: key}].name, constraints: now})
		sub.closeUnanswered(topic{name: key}, a)
		t.leave(sub, key, before.Key())
	}
	sub.implicit, sub.asks = now, nil
	if t.source != nil {
		t.constrainAnswers(sub, old)
		return
	}
	sub.stream.mu.Lock()
	sub.endWithdrawalsIf(func(_ topic, old *entry) bool { return !now.Match(old.parameters()) })
	sub.stream.mu.Unlock()
	for _, key := range t.covered(sub) {
		s := t.slots[key]
		old, _ := s.choose(before)
		if is := t.choose(s, now); is != old {
			sub.changed(topic{name: key}, is != nil, nil)
		}
	}
}

// covered returns the names of the resources that a subscription by names covers.
func (t *table) covered(sub *subscription) []nameKey {
	if sub.interest.wildcard() {
		return slices.Collect(maps.Keys(t.slots))
	}
	var covered []nameKey
	for tp := range sub.names {
		if !tp.name.isGlob() {
			covered = append(covered, tp.name)
			continue
		}
		for key := range t.members[tp.name.collection] {
			covered = append(covered, key)
		}
	}
	return covered
}

// answersTo returns what a type's source has answered a subscription by names.
func (t *table) answersTo(sub *subscription) map[topic]*entry {
	if t.source == nil {
		return nil
	}
	answers := make(map[topic]*entry, len(sub.names))
	for tp := range sub.names {
		answers[tp] = t.asks[tp.name][sub.askKey(tp)].entryOf(sub)
	}
	return answers
}

// constrainAnswers makes due what the source answers differently for the new constraints. What it has
// not answered yet is due when it does.
func (t *table) constrainAnswers(sub *subscription, old map[topic]*entry) {
	for tp := range sub.names {
		now := t.asks[tp.name][sub.askKey(tp)].entryOf(sub)
		if now != awaited && now != old[tp] && !tp.name.isGlob() {
			sub.changed(tp, now != nil, nil)
		}
	}
	sub.stream.mu.Lock()
	defer sub.stream.mu.Unlock()
	sub.endWithdrawalsIf(func(topic, *entry) bool { return true })
	// What the new constraints do not cover is removed once the collections are answered.
	sub.pending.all = sub.interest.wildcard()
	for tp := range sub.names {
		if tp.name.isGlob() {
			sub.pending.add(tp, false)
		}
	}
	sub.stream.markDue(sub)
}
