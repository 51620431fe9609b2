package controlplane

import (
	"cmp"
	"maps"
	"slices"
	"sync/atomic"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// nodeConstraints are the constraints of clients that send none.
type nodeConstraints struct {
	// of is nil if there are none.
	of func(*corepb.Node) dynparam.ByType
	// bind is Options.BindLocators.
	bind bool
	// epoch counts the calls of RefreshNodeConstraints.
	epoch atomic.Uint64
}

// forNode returns the constraints of a client that sends none.
func (c *nodeConstraints) forNode(node *corepb.Node) dynparam.ByType { return c.of(node) }

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
	if s.constraints == nil || s.constraints.of == nil {
		return
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	s.yields = true
	for {
		epoch := s.constraints.epoch.Load()
		s.store.constrain(s, s.constraints.forNode(s.node))
		if epoch == s.constraints.epoch.Load() {
			return
		}
	}
}

// constrain changes the constraints of a stream's subscriptions by names. The caller holds stream.changing.
func (s *Store) constrain(st *stream, implicit dynparam.ByType) {
	st.mu.Lock()
	st.implicit = implicit
	st.last.changes.Add(1)
	subs := slices.Collect(maps.Values(st.subs))
	st.mu.Unlock()
	for _, sub := range subs {
		now := st.implicitFor(sub.typeURL, sub.addressing)
		switch {
		case sub.implicit.Equal(now):
		case sub.addressing == byLocators:
			st.fail(errRebound)
			return
		default:
			st.usage.peer.enter()
			s.resubscription(sub).constrain(now)
			st.usage.peer.leave()
		}
	}
}

// errRebound ends a stream, which is simpler than to move its locators: the tags that tell clients apart seldom change.
var errRebound = status.Error(codes.Unavailable, "the constraints that the client's node adds to its locators have changed; open another stream")

// implicitFor returns the constraints for a type that the client does not send itself.
func (s *stream) implicitFor(typeURL string, d addressing) dynparam.Constraints {
	if typeURL == dynparam.MapTypeURL || d == byLocators && (s.constraints == nil || !s.constraints.bind) {
		return dynparam.Constraints{}
	}
	return s.implicit.For(typeURL)
}

// bind refuses the locators that contradict the constraints of the client's node.
func (s *stream) bind(sub *subscription, asked map[topic]locator) {
	if sub.addressing != byLocators || sub.implicit.IsZero() {
		return
	}
	for tp, l := range asked {
		if own := l.constraints; l.refused == nil && !own.Merge(sub.implicit).Equal(sub.implicit.Merge(own)) {
			l.refused = s.denial(&l, status.Newf(codes.PermissionDenied,
				"the locator of %q has constraints %v, but the client's node has %v: leave them out", l.name, own, sub.implicit))
			l.refused.contradicts = true
			asked[tp] = l
		}
	}
}

// constrain moves a subscription to other constraints, and records what that changes.
func (r *resubscription) constrain(now dynparam.Constraints) {
	var asks []*ask
	comparison{r.sub}.eachAsk(r.sub.stream.yielding(), func(a *ask) { asks = append(asks, a) })
	if !r.move(asks, now) {
		return
	}
	// What the client has of the new asks is only marked.
	r.turns = r.store.recording(r.sub.stream, r.sub.stream.yielding())
	r.lock()
	defer r.unlock()
	for tp, e := range r.sub.sent.entries {
		if !r.next() {
			return
		}
		r.sub.sent.set(tp, e)
	}
	r.sub.settling--
	r.sub.stream.markDue(r.sub)
}

// move moves all asks. It reports whether the stream goes on. Between two turns some names have moved, and others not.
func (r *resubscription) move(asks []*ask, now dynparam.Constraints) bool {
	r.lock()
	defer r.unlock()
	if !r.find() {
		return false
	}
	sub := r.sub
	sub.former, sub.implicit, sub.moving = sub.implicit, now, true
	r.settle(1)
	r.moveWildcard()
	for _, a := range asks {
		if !r.next() {
			return false
		}
		r.moveAsk(a)
	}
	r.note()
	sub.former, sub.moving = dynparam.Constraints{}, false
	sub.stream.mu.Lock()
	defer sub.stream.mu.Unlock()
	sub.endRetainedIf(func(_ topic, old *entry) bool { return r.t.source != nil || !now.Match(old.parameters()) })
	r.store.dropIfUnused(r.t)
	return true
}

func (r *resubscription) moveWildcard() {
	sub, t := r.sub, r.t
	if !sub.interest.wildcard() {
		return
	}
	a := t.join(sub, wildcardKey, sub.implicit.Key(), locator{constraints: sub.implicit})
	sub.closeUnanswered(wildcardTopic, a)
	t.leave(sub, wildcardKey, sub.former.Key())
	sub.stream.mu.Lock()
	defer sub.stream.mu.Unlock()
	if t.source != nil {
		// What the new constraints do not cover is removed once the collection is answered.
		sub.pending.all = true
		return
	}
	for key := range t.slots {
		r.compareMember(key)
	}
}

// compareMember makes a name due of which the client gets another variant. The caller holds stream.mu.
func (r *resubscription) compareMember(key nameKey) {
	s := r.t.slots[key]
	old, _ := s.choose(r.sub.former)
	if is := r.t.choose(s, r.sub.implicit); is != old {
		r.differs(topic{name: key}, is != nil, r.sub.mode != pushAll)
	}
}

// differs makes a topic due that exists, or does not. The caller holds stream.mu.
func (r *resubscription) differs(tp topic, exists, byName bool) {
	sub := r.sub
	if exists {
		sub.retained.restore(tp)
	}
	sub.pending.all = sub.pending.all || sub.mode == pushAll
	if byName {
		sub.pending.add(tp, false)
	}
}

// moveAsk moves one name from its ask to that with the new constraints.
func (r *resubscription) moveAsk(old *ask) {
	if old.refused != nil {
		return // stays denied
	}
	sub, t, tp := r.sub, r.t, r.sub.topicOf(old)
	was, spelled := old.entryOf(sub), cmp.Or(sub.spellings[old.number], old.spelling)
	sub.stream.mu.Lock()
	sub.sent.replaced(old, was)
	sub.stream.mu.Unlock()
	// Join before leaving: a subscription without any ask is dropped from the index.
	a := t.join(sub, old.name, sub.implicit.Key(), locator{name: old.spelling, constraints: sub.implicit})
	sub.closeUnanswered(tp, a)
	r.removed, r.added = append(r.removed, old.number), append(r.added, a.number)
	delete(sub.spellings, old.number)
	t.leave(sub, old.name, old.key)
	sub.spell(a, spelled)

	sub.stream.mu.Lock()
	defer sub.stream.mu.Unlock()
	now := a.entryOf(sub)
	switch {
	case !old.name.isGlob():
		if now != awaited && now != was {
			r.differs(tp, now != nil, true)
		}
	case t.source != nil:
		// The members are compared when the collection is answered.
		if had, _ := sub.sent.last(tp); had == absence {
			sub.sent.forget(tp)
		}
		sub.pending.add(tp, false)
	case sub.mode == pushDifference:
		for key := range t.members[old.name.collection] {
			r.compareMember(key)
		}
	}
}
