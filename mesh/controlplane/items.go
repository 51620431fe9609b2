package controlplane

import (
	"maps"
	"time"
)

// item is what a stream owes its client for a topic. Most topics have none: the client has what the store has, and nothing is due.
type item struct {
	// has is what the client was last sent, or claims to have; nil if that is what the store has, or nothing is known. See lastSent.
	has *entry
	// kept is the deleted resource that the client keeps; see Options.RemovalDelay.
	kept *entry
	// due is when the topic is compared with what the client has, again says that it is sent even if the client has it, as it
	// subscribed again, and renewed that the TTL of its resource begins again.
	due            due
	again, renewed bool
	// at is the position in the queue of due.
	at uint32
}

// due is when a topic is composed.
type due uint8

const (
	notDue due = iota
	// dueAnswered: a collection, once its source has answered.
	dueAnswered
	// dueHeartbeat: only a heartbeat is.
	dueHeartbeat
	// dueLater: the client has just subscribed to it. A part of these is sent at a time.
	dueLater
	// dueNow: an update has changed it.
	dueNow
	dues
)

// items are the items of a subscription, and what is due of it as a whole. Their number is bounded by what is subscribed and what
// the client knows. stream.mu guards them.
type items struct {
	of shrinkingMap[topic, item]
	// queues have the topics by item.due.
	queues [dues][]topic
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

func (s *items) setHas(tp topic, e *entry) {
	it := s.get(tp)
	it.has = e
	s.put(tp, it)
}

func (s *items) setKept(tp topic, e *entry) {
	it := s.get(tp)
	it.kept = e
	s.put(tp, it)
}

// noneDue reports whether nothing is due yet.
func (s *items) noneDue() bool {
	return len(s.queues[dueHeartbeat])+len(s.queues[dueLater])+len(s.queues[dueNow]) == 0
}

// add makes a topic due, unless it is earlier.
func (s *items) add(tp topic, when due, again bool) {
	it := s.get(tp)
	it.again = it.again || again
	if it.due < when {
		s.unqueue(tp, &it)
		it.due, it.at = when, uint32(len(s.queues[when]))
		s.queues[when] = append(s.queues[when], tp)
	}
	s.put(tp, it)
}

// keepAgain has the topic sent even if the client has it, once it is due.
func (s *items) keepAgain(tp topic) {
	it := s.get(tp)
	it.again = true
	s.put(tp, it)
}

// renew makes a heartbeat due.
func (s *items) renew(tp topic) {
	it := s.get(tp)
	it.renewed = true
	s.put(tp, it)
	s.add(tp, dueHeartbeat, false)
}

// drop undoes add and renew.
func (s *items) drop(tp topic) {
	it := s.get(tp)
	s.unqueue(tp, &it)
	it.again, it.renewed = false, false
	s.put(tp, it)
}

func (s *items) unqueue(tp topic, it *item) {
	if it.due == notDue {
		return
	}
	queue := s.queues[it.due]
	end := len(queue) - 1
	if last := queue[end]; last != tp {
		moved := s.get(last)
		moved.at = it.at
		s.of.set(last, moved)
		queue[it.at] = last
	}
	queue[end] = topic{}
	if s.queues[it.due] = queue[:end]; end == 0 {
		s.queues[it.due] = nil
	}
	it.due, it.at = notDue, 0
}

// promote makes some of what is due later due now, so that some are, if there are as many.
func (s *items) promote(some int) {
	for len(s.queues[dueNow]) < some && len(s.queues[dueLater]) > 0 {
		s.add(s.queues[dueLater][len(s.queues[dueLater])-1], dueNow, false)
	}
}

// dueTopic is a topic that was taken from the queues, with its item from before.
type dueTopic struct {
	topic
	item
}

// take removes what is due now, and the heartbeats.
func (s *items) take() []dueTopic {
	taken := make([]dueTopic, 0, len(s.queues[dueNow])+len(s.queues[dueHeartbeat]))
	for _, when := range []due{dueNow, dueHeartbeat} {
		for _, tp := range s.queues[when] {
			it := s.get(tp)
			taken = append(taken, dueTopic{tp, it})
			s.put(tp, item{has: it.has, kept: it.kept})
		}
		s.queues[when] = nil
	}
	return taken
}

// sentAgain notes that the client has been sent what it subscribed to, of which the errors are due later.
func (s *items) sentAgain() {
	for _, tp := range s.queues[dueLater] {
		it := s.get(tp)
		it.again = false
		s.put(tp, it)
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
