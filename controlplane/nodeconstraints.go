package controlplane

import (
	"cmp"
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
	return s.node, s.phase == phaseGreeted
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
	st.last.changes.Add(1)
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
	left := slices.Collect(sub.asks())
	if sub.interest.wildcard() {
		left = append(left, t.ask(wildcardKey, before.Key()))
	}
	sub.stream.mu.Lock()
	sub.sent.keep()
	sub.stream.mu.Unlock()
	names, spellings := make([]uint32, 0, len(left)), sub.spellings
	sub.spellings = nil
	// Join before leaving: a subscription without any ask is dropped from the index.
	left = slices.DeleteFunc(left, func(a *ask) bool {
		if a.refused == nil {
			return false
		}
		names = append(names, a.number) // stays denied
		if spelled, ok := spellings[a.number]; ok {
			sub.spell(a, spelled)
		}
		return true
	})
	for _, old := range left {
		a := t.join(sub, old.name, now.Key(), locator{name: old.spelling, constraints: now})
		sub.closeUnanswered(topic{name: old.name}, a)
		if sub.names.has(old.number) {
			names = append(names, a.number)
			sub.spell(a, cmp.Or(spellings[old.number], old.spelling))
		}
	}
	for _, old := range left {
		t.leave(sub, old.name, old.key)
	}
	sub.names = askedSet{}
	sub.changeNames(nil, names)
	sub.implicit = now
	sub.stream.mu.Lock()
	sub.sent.share()
	sub.stream.mu.Unlock()
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
	for a := range sub.asks() {
		if !a.name.isGlob() {
			covered = append(covered, a.name)
			continue
		}
		for key := range t.members[a.name.collection] {
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
	answers := make(map[topic]*entry, sub.names.len())
	for a := range sub.asks() {
		answers[sub.topicOf(a)] = a.entryOf(sub)
	}
	return answers
}

// constrainAnswers makes due what the source answers differently for the new constraints. What it has
// not answered yet is due when it does.
func (t *table) constrainAnswers(sub *subscription, old map[topic]*entry) {
	for a := range sub.asks() {
		tp, now := sub.topicOf(a), a.entryOf(sub)
		if now != awaited && now != old[tp] && !tp.name.isGlob() {
			sub.changed(tp, now != nil, nil)
		}
	}
	sub.stream.mu.Lock()
	defer sub.stream.mu.Unlock()
	sub.endWithdrawalsIf(func(topic, *entry) bool { return true })
	// What the new constraints do not cover is removed once the collections are answered.
	sub.pending.all = sub.interest.wildcard()
	for a := range sub.asks() {
		if a.name.isGlob() {
			sub.pending.add(sub.topicOf(a), false)
		}
	}
	sub.stream.markDue(sub)
}
