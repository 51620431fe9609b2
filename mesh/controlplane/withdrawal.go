package controlplane

import (
	"maps"
	"time"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// Bounds of the deleted resources that one stream keeps. Beyond them the oldest are removed.
const (
	maxWithdrawals     = 10_000
	maxWithdrawalBytes = 32 << 20
)

// withdrawal is a deleted resource that is kept for the client until it is due.
type withdrawal struct {
	sub   *subscription
	topic topic
	// old is the deleted entry. The withdrawal is over when subscription.kept has something
	// else under the topic.
	old *entry
	due time.Time
}

func (w *withdrawal) size() int { return w.old.resource.size() }

// keptEntries are the deleted resources that are kept for the client; see Options.RemovalDelay.
// stream.mu guards them.
type keptEntries map[topic]*entry

// withdrawals are the withdrawals of one stream. stream.mu guards them.
type withdrawals struct {
	// delay is zero or less if deletions are not delayed.
	delay time.Duration
	// completeOnly is set if only a complete response can report a removal (SotW without
	// Options.NotFoundErrors).
	completeOnly bool
	// queue is in the order of due. It includes withdrawals that are over.
	queue []withdrawal
	// bytes is the size of the resources in queue.
	bytes int
	// timer fires when the first of queue is due.
	timer *time.Timer
}

func newWithdrawals() withdrawals {
	w := withdrawals{timer: time.NewTimer(time.Hour)}
	w.timer.Stop()
	return w
}

// delaysRemoval reports whether other resources refer to those of the type.
func delaysRemoval(typeURL string) bool {
	return typeURL != typeurl.Listener && typeURL != dynparam.MapTypeURL
}

// withdraw keeps for the client what the store has just deleted, and reports whether it does. old
// is nil if it was not a deletion. The caller holds stream.mu.
func (sub *subscription) withdraw(tp topic, old *entry) bool {
	s := sub.stream
	switch {
	case s.withdrawals.delay <= 0 || s.released || !delaysRemoval(sub.typeURL):
		return false
	case sub.mode == pushChanged && s.withdrawals.completeOnly:
		return false
	case old.asResource() == nil || !sub.hasResource(tp):
		return false
	}
	if sub.kept[tp] != nil {
		return true // as a name and as a member of a collection
	}
	if sub.kept == nil {
		sub.kept = keptEntries{}
	}
	sub.kept[tp] = old
	w := withdrawal{sub: sub, topic: tp, old: old, due: time.Now().Add(s.withdrawals.delay)}
	s.withdrawals.queue = append(s.withdrawals.queue, w)
	s.withdrawals.bytes += w.size()
	if len(s.withdrawals.queue) == 1 {
		s.rearm()
	}
	for len(s.withdrawals.queue) > maxWithdrawals || s.withdrawals.bytes > maxWithdrawalBytes {
		s.endFirst() // the timer may find nothing due then, and is set again
	}
	return sub.kept[tp] != nil
}

// hasResource reports whether the client was sent a resource under the topic, and has not
// subscribed to it again. In SotW what a wildcard covers counts as sent; dropUnsent corrects that.
func (sub *subscription) hasResource(tp topic) bool {
	again := sub.pending.requested(tp) || sub.pending.allAgain
	if sub.mode == pushAll {
		again = again && sub.pending.all // otherwise the last response had all resources
	}
	if again {
		return false
	}
	sent, _ := sub.sent.last(tp)
	if sub.mode == pushDifference {
		return sent != nil && sent.resource != nil
	}
	return sent == nil
}

// restore ends a withdrawal without a response: the resource exists again, or the client has
// unsubscribed.
func (kept keptEntries) restore(tp topic) { delete(kept, tp) }

// endWithdrawal makes the removal of a resource due. The caller holds stream.mu.
func (sub *subscription) endWithdrawal(tp topic) {
	sub.kept.restore(tp)
	if sub.mode == pushAll {
		sub.pending.all = true
		if !sub.named(tp) {
			return
		}
	}
	sub.pending.add(tp, false)
}

// endFirst removes the oldest withdrawal from the queue, and ends it unless it is over. The caller
// holds stream.mu.
func (s *stream) endFirst() {
	s.last.changes.Add(1)
	q := &s.withdrawals
	first := q.queue[0]
	q.queue[0] = withdrawal{}
	q.queue = q.queue[1:]
	q.bytes -= first.size()
	if first.sub.kept[first.topic] == first.old {
		first.sub.endWithdrawal(first.topic)
		s.markDue(first.sub)
	}
}

// rearm sets the timer to the first of the queue. The caller holds stream.mu.
func (s *stream) rearm() {
	q := &s.withdrawals
	if len(q.queue) == 0 {
		q.queue = nil
		q.timer.Stop()
		return
	}
	q.timer.Reset(time.Until(q.queue[0].due))
}

// endWithdrawals ends the withdrawals that are due. exchange calls it when the timer fires.
func (s *stream) endWithdrawals() {
	s.store.mu.RLock()
	defer s.store.mu.RUnlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.released {
		return
	}
	for now := time.Now(); len(s.withdrawals.queue) > 0 && !now.Before(s.withdrawals.queue[0].due); {
		s.endFirst()
	}
	s.rearm()
}

// dropWithdrawals ends everything when the stream ends. The caller holds stream.mu.
func (s *stream) dropWithdrawals() {
	s.withdrawals.queue, s.withdrawals.bytes = nil, 0
	s.withdrawals.timer.Stop()
}

// requestedAgain ends the withdrawals of what the client subscribes to again. The caller holds
// stream.mu.
func (sub *subscription) requestedAgain(tp topic) {
	if tp.name.isGlob() || sub.isWildcard(tp) {
		sub.endWithdrawalsIf(func(member topic, old *entry) bool {
			return sub.isWildcard(tp) || member.name.collection == tp.name.collection
		})
		return
	}
	if sub.kept[tp] != nil {
		sub.endWithdrawal(tp)
	}
}

// endWithdrawalsOf ends those of a name, which is now in error. The caller holds Store.mu.
func (sub *subscription) endWithdrawalsOf(key nameKey) {
	sub.stream.mu.Lock()
	defer sub.stream.mu.Unlock()
	sub.endWithdrawalsIf(func(tp topic, _ *entry) bool { return tp.name == key })
}

// endWithdrawalsIf ends those for which end is true. The caller holds stream.mu.
func (sub *subscription) endWithdrawalsIf(end func(topic, *entry) bool) {
	for tp, old := range sub.kept {
		if end(tp, old) {
			sub.endWithdrawal(tp)
		}
	}
	sub.stream.markDue(sub)
}

// resources returns the kept resources.
func (kept keptEntries) resources() []*Resource {
	resources := make([]*Resource, 0, len(kept))
	for _, old := range kept {
		resources = append(resources, old.resource)
	}
	return resources
}

// dropUnsent ends the withdrawals of resources that were not in the last complete response, which
// is ordered by name.
func (kept keptEntries) dropUnsent(sent []*Resource) {
	maps.DeleteFunc(kept, func(_ topic, old *entry) bool { return !hasName(sent, old.resource.name) })
}
