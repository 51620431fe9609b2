package controlplane

import (
	"maps"
	"time"
)

// item is what a stream knows of a topic. Most topics have none: the client has what the store has.
type item struct {
	// has is what the client was last sent, or claims to have; nil if that is what the store has, or nothing is known. See lastSent.
	has *entry
	// kept is the deleted resource that the client keeps; see Options.RemovalDelay.
	kept *entry
	// again says that the topic, once it is due, is sent even if the client has it, as it subscribed again; and renewed that a heartbeat is
	// sent if the client has it.
	again, renewed bool
}

// topics is a set of topics.
type topics struct{ shrinkingMap[topic, struct{}] }

func (s *topics) add(tp topic) { s.set(tp, struct{}{}) }

func (s *topics) has(tp topic) bool {
	_, ok := s.m[tp]
	return ok
}

// items are the items of a subscription, and what is due of it. Their number is bounded by what is subscribed and what
// the client knows. See subscription.items for what guards them.
type items struct {
	of shrinkingMap[topic, item]
	// now are the topics that are compared with what the client has, and sent, with the next response; later those to which the client
	// has just subscribed, of which a part becomes due now at a time; and waiting the collections that are due when their source answers. No
	// topic is in two of these.
	now, later, waiting topics
	// changed is the time of the first update that made something due, zero if none did.
	changed time.Time
}

// wholeList is the topic of a complete SotW response, which no name has.
var wholeList = topic{which: "list"}

func (s *items) get(tp topic) item { return s.of.m[tp] }

func (s *items) put(tp topic, it item) {
	if it == (item{}) {
		s.of.delete(tp)
	} else {
		s.of.set(tp, it)
	}
}

func (s *items) edit(tp topic, change func(*item)) {
	it := s.get(tp)
	change(&it)
	s.put(tp, it)
}

func (s *items) setHas(tp topic, e *entry) { s.edit(tp, func(it *item) { it.has = e }) }

func (s *items) setKept(tp topic, e *entry) { s.edit(tp, func(it *item) { it.kept = e }) }

func (s *items) setAgain(tp topic, again bool) { s.edit(tp, func(it *item) { it.again = again }) }

// noneDue reports whether nothing is due yet.
func (s *items) noneDue() bool { return len(s.now.m)+len(s.later.m) == 0 }

// add makes a topic due now.
func (s *items) add(tp topic, again bool) {
	s.later.delete(tp)
	s.waiting.delete(tp)
	s.now.add(tp)
	if again {
		s.setAgain(tp, true)
	}
}

// addLater makes a topic due later, unless it is now.
func (s *items) addLater(tp topic, again bool) {
	if !s.now.has(tp) {
		s.waiting.delete(tp)
		s.later.add(tp)
	}
	if again {
		s.setAgain(tp, true)
	}
}

// drop makes a topic not due.
func (s *items) drop(tp topic) {
	for _, due := range []*topics{&s.now, &s.later, &s.waiting} {
		due.delete(tp)
	}
	s.take(tp)
}

// take returns the item of a topic that is no longer due.
func (s *items) take(tp topic) item {
	it := s.get(tp)
	s.put(tp, item{has: it.has, kept: it.kept})
	return it
}

// promote makes some of what is due later due now, so that some are, if there are as many.
func (s *items) promote(some int) {
	if s.now.has(wholeList) { // a fetch of so many names is complete
		some++
	}
	for tp := range s.later.m {
		if len(s.now.m) >= some {
			return
		}
		s.add(tp, false)
	}
}

// sentAgain notes that the client has been sent what it subscribed to, of which the errors are due later.
func (s *items) sentAgain() {
	for tp := range s.later.m {
		s.setAgain(tp, false)
	}
}

// updated notes the time of the update that makes something due, zero if it is none.
func (s *items) updated(at time.Time) {
	if s.changed.IsZero() && !s.noneDue() {
		s.changed = at
	}
}

// shrinkingMap is a map that is made again when most of it was deleted, as a map does not shrink.
type shrinkingMap[K comparable, V any] struct {
	m map[K]V
	// most is the largest number of keys since the map was made.
	most int
}

func (s *shrinkingMap[K, V]) set(k K, v V) {
	if s.m == nil {
		s.m = map[K]V{}
	}
	s.m[k] = v
	s.most = max(s.most, len(s.m))
}

func (s *shrinkingMap[K, V]) delete(k K) {
	delete(s.m, k)
	switch left := len(s.m); {
	case left == 0:
		s.m, s.most = nil, 0
	case left <= s.most/8:
		again := make(map[K]V, left)
		maps.Copy(again, s.m)
		s.m, s.most = again, left
	}
}
