package controlplane

import (
	"slices"
	"time"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// Bounds of the deleted resources that one stream keeps. Beyond them the oldest are removed.
const (
	maxRetained      = 10_000
	maxRetainedBytes = 32 << 20
)

// retained is a deleted resource that is kept for the client until it is due.
type retained struct {
	sub   *subscription
	topic topic
	// old is the deleted entry. It is over when another one is kept of the topic, or none.
	old *entry
	due time.Time
}

func (w *retained) isKept() bool { return w.sub.items.kept.m[w.topic] == w.old }

func (w *retained) size() int { return w.old.resource.size() }

// retention has the deleted resources that are retained for the client of one stream. They are guarded as the items of a subscription are.
type retention struct {
	// queue is in the order of due. It includes those that are over.
	queue []retained
	// bytes is the size of the resources in queue.
	bytes int
	// timer fires when the first of queue is due.
	timer *time.Timer
}

func newRetention() retention {
	w := retention{timer: time.NewTimer(time.Hour)}
	w.timer.Stop()
	return w
}

// retain keeps for the client what the store has just deleted, and reports whether it does. old
// is nil if it was not a deletion.
func (sub *subscription) retain(tp topic, old *entry) bool {
	s := sub.stream
	switch {
	case s.opts.RemovalDelay <= 0 || s.released || sub.typeURL == typeurl.Listener || sub.typeURL == dynparam.MapTypeURL: // no resource refers to these
		return false
	case sub.mode == pushChanged && !s.reportsAbsence:
		return false
	case old.asResource() == nil || !sub.hasResource(tp, old.resource):
		return false
	}
	if sub.items.kept.m[tp] != nil {
		return true // as a name and as a member of a collection
	}
	sub.items.kept.set(tp, old)
	w := retained{sub: sub, topic: tp, old: old, due: time.Now().Add(s.opts.RemovalDelay)}
	s.retention.queue = append(s.retention.queue, w)
	s.retention.bytes += w.size()
	if len(s.retention.queue) == 1 {
		s.rearm()
	}
	for len(s.retention.queue) > maxRetained || s.retention.bytes > maxRetainedBytes {
		s.endFirst() // the timer may find nothing due then, and is set again
	}
	return sub.items.kept.m[tp] != nil
}

// hasResource reports whether the client was sent a resource under the topic, and has not
// subscribed to it again.
func (sub *subscription) hasResource(tp topic, r *Resource) bool {
	switch {
	case sub.items.urgency(tp) == inAnyCase:
		return false
	case sub.mode == pushAll: // whatever its version
		_, listed := slices.BinarySearchFunc(sub.last, r, byName)
		return listed
	default:
		return sub.lastSent(tp, sub.askOf(tp)).asResource() != nil
	}
}

// restore ends a retention without a response: the resource exists again, or the client has
// unsubscribed.
func (sub *subscription) restore(tp topic) { sub.items.kept.delete(tp) }

// endRetained makes the removal of a resource due.
func (sub *subscription) endRetained(tp topic) {
	sub.restore(tp)
	sub.dueChanged(tp)
}

// endFirst removes the oldest from the queue, and ends it unless it is over.
func (s *stream) endFirst() {
	s.last.changes.Add(1)
	q := &s.retention
	first := q.queue[0]
	q.queue[0] = retained{}
	q.queue = q.queue[1:]
	q.bytes -= first.size()
	if first.isKept() {
		first.sub.endRetained(first.topic)
		s.markDue(first.sub)
	}
}

// rearm sets the timer to the first of the queue.
func (s *stream) rearm() {
	q := &s.retention
	if len(q.queue) == 0 {
		q.queue = nil
		q.timer.Stop()
		return
	}
	q.timer.Reset(time.Until(q.queue[0].due))
}

// endRetention ends what is due. exchange calls it when the timer fires.
func (s *stream) endRetention() {
	s.store.mu.RLock()
	defer s.store.mu.RUnlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.released {
		return
	}
	for now := time.Now(); len(s.retention.queue) > 0 && !now.Before(s.retention.queue[0].due); {
		s.endFirst()
	}
	s.rearm()
}

// dropRetention ends everything when the stream ends.
func (s *stream) dropRetention() {
	s.retention.queue, s.retention.bytes = nil, 0
	s.retention.timer.Stop()
}

// requestedAgain ends the retention of what the client subscribes to again.
func (sub *subscription) requestedAgain(tp topic) {
	if tp.name.isGlob() || sub.isWildcard(tp) {
		sub.endRetainedIf(func(member topic, old *entry) bool {
			return sub.isWildcard(tp) || member.name.collection == tp.name.collection
		})
		return
	}
	if sub.items.kept.m[tp] != nil {
		sub.endRetained(tp)
	}
}

// endRetainedIf ends those for which end is true.
func (sub *subscription) endRetainedIf(end func(topic, *entry) bool) {
	for tp, old := range sub.items.kept.m {
		if end(tp, old) {
			sub.endRetained(tp)
		}
	}
	sub.stream.markDue(sub)
}
