package controlplane

import (
	"cmp"
	"maps"
	"slices"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// RefreshNodeConstraints calls [Options.NodeConstraints] again for the streams whose nodes affected
// accepts or, if it is nil, for all. Clients are sent only resources of which they now get another
// variant.
func (s *Server) RefreshNodeConstraints(affected func(*corepb.Node) bool) {
	if s.opts.NodeConstraints == nil {
		return
	}
	for _, st := range s.present() {
		// A stream asks for its constraints after it was greeted, and so gets the new ones.
		if node, greeted := st.greeting(); greeted && (affected == nil || affected(node)) {
			st.constrain()
		}
	}
}

func (s *stream) greeting() (*corepb.Node, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.node, s.greeted && !s.over
}

// constrain updates the constraints of the stream by its node. The caller holds no lock.
func (s *stream) constrain() {
	if s.opts.NodeConstraints == nil {
		return
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	s.yields = true
	s.store.constrain(s, s.opts.NodeConstraints(s.node))
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
			if r := s.resubscription(sub); r.constrain(now) {
				r.sortNames()
				st.settle(sub)
			}
			st.usage.peer.leave()
		}
	}
}

// errRebound ends a stream, which is simpler than to move its locators: the tags that tell clients apart seldom change.
var errRebound = status.Error(codes.Unavailable, "the constraints that the client's node adds to its locators have changed; open another stream")

// implicitFor returns the constraints for a type that the client does not send itself.
func (s *stream) implicitFor(typeURL string, d addressing) dynparam.Constraints {
	if typeURL == dynparam.MapTypeURL || d == byLocators && !s.opts.BindLocators {
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

// constrain moves a subscription to other constraints, and reports whether the stream goes on. Between two turns some names have moved, and
// others not.
func (r *resubscription) constrain(now dynparam.Constraints) bool {
	var asks []*ask
	r.sub.eachAsk(func(a *ask) { asks = append(asks, a) })
	r.lock()
	defer r.unlock()
	if !r.goesOn() {
		return false
	}
	sub := r.sub
	sub.implicit = now
	sub.settling.Add(1)
	for a := range inTurns(&r.turns, slices.Values(asks)) {
		r.moveAsk(a)
	}
	if r.ended {
		return false
	}
	r.note()
	sub.endRetainedIf(func(_ topic, old *entry) bool { return sub.table.source != nil || !now.Match(old.parameters()) })
	return true
}

// moveAsk moves one name from its ask to that with the new constraints.
func (r *resubscription) moveAsk(old *ask) {
	if old.refused != nil {
		return // stays denied
	}
	sub, t, tp := r.sub, r.sub.table, r.sub.topicOf(old)
	was := old.entryOf(sub)
	had := cmp.Or(sub.lastSent(tp, old), nothing)
	l := locator{name: old.spelling}
	key := sub.keyFor(tp, &l)
	a := t.ask(old.name, key)
	if a == nil {
		a = t.newAsk(sub, old.name, key, l)
	}
	a.join(sub)
	r.removed, r.added = append(r.removed, old.number), append(r.added, a.number)
	old.leave(sub)
	sub.refuseWildcard(a)
	sub.setSent(tp, a, had)
	switch now := a.entryOf(sub); {
	case sub.isWildcard(tp) && t.source == nil && slices.Equal(old.list(byNames), a.list(byNames)):
	case sub.isCollection(tp):
		if had == absence {
			sub.items.has.set(tp, nothing) // so that the members are compared
		}
		sub.items.add(tp, ifChanged)
	case now == awaited: // due when it is answered
	case now != was || sub.isWildcard(tp):
		if now != nil {
			sub.restore(tp)
		}
		if sub.mode == pushAll {
			sub.items.add(wholeList, ifChanged)
		}
		sub.items.add(tp, ifChanged)
	}
}
