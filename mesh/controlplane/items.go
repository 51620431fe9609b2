package controlplane

import (
	"maps"
	"time"
)

// urgency says for what a topic that is due is sent; each next one has those before.
type urgency int8

const (
	notDue urgency = iota
	// ifChanged: if the client does not have it.
	ifChanged
	// forHeartbeat: if the client has it, a heartbeat is sent.
	forHeartbeat
	// inAnyCase: even if the client has it, as it subscribed again.
	inAnyCase
)

// topics is a set of topics that are due.
type topics = shrinkingMap[topic, urgency]

// items are what a stream knows of the topics of a subscription, and which are due. Their number is bounded by what is subscribed and what
// the client knows. See subscription.items for what guards them.
type items struct {
	// has is what the client was last sent, or claims to have. Most topics are not in it: the client has what the store has, or nothing is
	// known. See lastSent.
	has shrinkingMap[topic, *entry]
	// kept are the deleted resources that the client keeps; see Options.RemovalDelay.
	kept shrinkingMap[topic, *entry]
	// now are the topics that are compared with what the client has, and sent, with the next response; later those to which the client
	// has just subscribed, of which a part becomes due now at a time; and waiting those that are due when their source answers: the
	// collections, and what is sent in any case. No topic is in two of these.
	now, later, waiting topics
	// changed is the time of the first update that made something due, zero if none did.
	changed time.Time
}

// wholeList is the topic of a complete SotW response, which no name has.
var wholeList = topic{which: "list"}

// noneDue reports whether nothing is due yet.
func (s *items) noneDue() bool { return len(s.now.m)+len(s.later.m) == 0 }

// urgency returns that of a topic, whether it is due now, later or when its source answers.
func (s *items) urgency(tp topic) urgency { return max(s.now.m[tp], s.later.m[tp], s.waiting.m[tp]) }

// add makes a topic due now.
func (s *items) add(tp topic, how urgency) {
	how = max(how, s.urgency(tp))
	s.later.delete(tp)
	s.waiting.delete(tp)
	s.now.set(tp, how)
}

// addLater makes a topic due later, unless it is now.
func (s *items) addLater(tp topic, how urgency) {
	how = max(how, s.urgency(tp))
	if s.now.m[tp] != notDue {
		s.now.set(tp, how)
		return
	}
	s.waiting.delete(tp)
	s.later.set(tp, how)
}

// drop makes a topic not due.
func (s *items) drop(tp topic) {
	s.now.delete(tp)
	s.later.delete(tp)
	s.waiting.delete(tp)
}

// promote makes some of what is due later due now, so that some are, if there are as many.
func (s *items) promote(some int) {
	if s.now.m[wholeList] != notDue { // a fetch of so many names is complete
		some++
	}
	for tp := range s.later.m {
		if len(s.now.m) >= some {
			return
		}
		s.add(tp, ifChanged)
	}
}

// sentAgain notes that the client has been sent what it subscribed to, of which the errors are due later.
func (s *items) sentAgain() {
	for tp := range s.later.m {
		s.later.set(tp, ifChanged)
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
