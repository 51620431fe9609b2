package controlplane

import (
	"cmp"

	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// sent is what a client was last sent, as far as it decides what to send next. SotW: errors, absence
// that was reported as an error, computed resources, and resources with errors beside them. Delta: everything that the client
// knows. The topic of a glob has the collection's error, or absence if there is none.
//
// A delta client mostly knows the present entry of an ask, if that has an answer; that is only marked in selection.names,
// and entries has the rest. The caller of each method holds stream.mu, and Store.mu at least for reading.
type sent struct {
	of      *subscription
	entries map[topic]*entry
}

// marks reports whether what is known is marked.
func (s *sent) marks() bool { return s.of.mode == pushDifference }

// present is what marks stand for.
func (s *sent) present(a *ask) *entry { return cmp.Or(a.entryOf(s.of), absence) }

// last returns what the client was last sent of a topic, and whether it was sent anything.
func (s *sent) last(tp topic) (*entry, bool) { return s.lastOf(tp, s.of.askOf(tp)) }

// lastOf is last for a topic with its ask, nil if it is not subscribed by name.
func (s *sent) lastOf(tp topic, a *ask) (*entry, bool) {
	if e, ok := s.entries[tp]; ok {
		return e, true
	}
	if a != nil && s.of.names.known(a.number) {
		return s.present(a), true
	}
	return nil, false
}

// has reports whether the client was sent anything of a topic.
func (s *sent) has(tp topic) bool {
	_, ok := s.last(tp)
	return ok
}

// set records what the client was sent.
func (s *sent) set(tp topic, e *entry) { s.setOf(tp, s.of.askOf(tp), e) }

// setOf is set for a topic with its ask, nil if it is not subscribed by name.
func (s *sent) setOf(tp topic, a *ask, e *entry) {
	if !s.marks() && e.resource != nil && s.of.typeURL != dynparam.MapTypeURL && (s.of.mode == pushAll || e.beside == nil) {
		s.forget(tp)
		return
	}
	if s.marks() && a != nil {
		known := s.present(a) == e
		s.of.names.setKnown(a.number, known)
		if known {
			delete(s.entries, tp)
			return
		}
	}
	s.put(tp, e)
}

// setResource is setOf for a client that was not told of the error beside a resource: it is sent that with a later response.
func (s *sent) setResource(tp topic, a *ask, e *entry) {
	if a == nil || e.beside == nil || s.of.mode == pushAll {
		s.setOf(tp, a, e)
		return
	}
	s.of.names.setKnown(a.number, false)
	s.put(tp, &entry{resource: e.resource})
}

// keep records what a SotW client has before an error goes beside it.
func (s *sent) keep(tp topic, old *entry) {
	if s.of.mode == pushChanged && old.asResource() != nil && !s.has(tp) {
		s.put(tp, old)
	}
}

func (s *sent) put(tp topic, e *entry) {
	if s.entries == nil {
		s.entries = map[topic]*entry{}
	}
	s.entries[tp] = e
}

// forget records that it is not known what the client has of a topic that is not subscribed by name, or has no answer.
func (s *sent) forget(tp topic) { delete(s.entries, tp) }

// replaced keeps what the client was sent, before or after the entry of an ask changes.
func (s *sent) replaced(a *ask, old *entry) {
	if s.of.names.known(a.number) {
		s.of.names.setKnown(a.number, false)
		s.put(s.of.topicOf(a), cmp.Or(old, absence))
	}
}

// all calls yield with everything that the client was sent.
func (s *sent) all(yield func(topic, *entry) bool) {
	for tp, e := range s.entries {
		if !yield(tp, e) {
			return
		}
	}
	if !s.marks() {
		return
	}
	for a := range s.of.asks() {
		if s.of.names.known(a.number) && !yield(s.of.topicOf(a), s.present(a)) {
			return
		}
	}
}

// absence records that the client knows that a name does not exist. The store never holds it.
var absence = &entry{}
