package controlplane

import (
	"cmp"
	"maps"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"

	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// Source is notified of what clients subscribe to, so that a program can get or compute resources on
// demand. begun are the demands that have begun since the last call, ended those that have ended:
// the last subscriber left, or its stream ended. It answers the begun ones, then or later, as often
// as it likes, by [Tx.Answer] and [Tx.AnswerError].
//
// Calls are sequential. A demand that begins and ends between two calls is in neither, as is one that
// ends and begins again, which keeps its answer. One that is answered with RESOURCE_EXHAUSTED is replaced by
// another, with another First, when a client joins the subscribers: there may be room for that one. The order within a slice is not defined. Source is
// called by a goroutine of the store, without locks, and may update the store. While it runs it is not
// notified of other demands; it should be quick.
type Source func(begun, ended []*Demand)

// Demand is a subscription that at least one client has: the key by which a [Source] answers. All
// subscribers with equal constraints, and one spelling of the name, share one, but for resources that must not be cached.
//
// It is immutable for its reader, and comparable: the pointer that began is the one that ends.
type Demand struct {
	// TypeURL is the type of the resources.
	TypeURL string
	// Name is the name of the resource or the glob collection (xRFC TP1), or "*" for a wildcard,
	// as the subscribers spell it.
	Name string
	// Constraints are those of the subscribers' locators (xRFC TP2), or of
	// [Options.NodeConstraints]; without them, none.
	Constraints dynparam.Constraints
	// Stream is the ID (see [ClientStatus]) of the only subscriber, and Node its node, if the
	// resource must not be cached: that of DPDS (TP2, "Non-Cacheability of DPDS"), or one whose
	// first answer has that cache control ([NewResource]). Stream is 0 if the demand is shared; the nodes of its
	// subscribers are those of the streams that [Options.StoreFor] gave the store.
	Stream uint64
	Node   *corepb.Node
	// First is the ID of the stream that subscribed first.
	First uint64

	// The rest is guarded by Store.mu.

	ask *ask
	// sub is the only subscriber, nil if the demand is shared.
	sub *subscription
	// payer is the peer of sub.
	payer *peerUsage
	// answer is what the subscribers get; awaited before there is one.
	answer *entry
	// begun is set while the source was notified of the begin, and not of the end.
	begun bool
}

// Collection reports whether the demand is for a glob collection or, if its Name is "*", for a wildcard.
func (d *Demand) Collection() bool {
	return isCollection(d.TypeURL, keyOf(d.Name))
}

func isCollection(typeURL string, name nameKey) bool {
	return name.isGlob() || name == wildcardKey && hasWildcard(typeURL)
}

// awaited stands for the answer that a source has not given yet.
var awaited = &entry{}

// OnDemand makes source answer the subscriptions to resources of a type or, if typeURL is empty, of
// every type that has no source of its own. It must be called before the store is served.
//
// A subscription to a name then gets what the source answers for its constraints, and nothing else;
// until there is an answer, the client is sent nothing about the name. The members of collections,
// that is of globs and wildcards, are the resources that are set in the store. A
// collection is sent when the source has answered that its members are there. A SotW response of
// Listeners or Clusters, which has to be complete, is not sent before there is an answer to every
// name that the client's first request has.
func (s *Store) OnDemand(typeURL string, source Source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sources[typeURL] = &sourceOf{notify: source, pending: map[*Demand]struct{}{}}
}

// sourceOf is a source, and the demands whose begin or end it is still to be notified of.
type sourceOf struct {
	notify  Source
	pending map[*Demand]struct{}
}

// stands reports whether the demand was neither dropped nor replaced. The caller holds Store.mu.
func (d *Demand) stands() bool {
	if d.sub != nil {
		return d.ask.own[d.sub] == d
	}
	return d.ask.demand == d
}

// live reports whether the demand has a subscriber. The caller holds Store.mu.
func (d *Demand) live() bool {
	if d.sub != nil && !d.ask.hasSub(d.sub) {
		return false
	}
	return d.stands() && len(d.ask.subs) > 0
}

// update has the source notified, soon, if the demand has begun or ended. One that ended before the source
// was notified is dropped at once, so that the pending ones are bounded by what is subscribed and what the
// source was notified of. The caller holds Store.mu.
func (d *Demand) update() {
	s, source := d.ask.table.store, d.ask.table.source
	if d.live() == d.begun {
		delete(source.pending, d)
		if !d.begun {
			d.drop()
		}
		return
	}
	source.pending[d] = struct{}{}
	if !s.notifying {
		s.notifying = true
		go s.notifySources()
	}
}

// drop removes the demand from its ask, and the ask from the table if nothing is left of it. The
// caller holds Store.mu.
func (d *Demand) drop() {
	d.begun = false
	payNames(&d.payer, nil, 1)
	a := d.ask
	switch {
	case !d.stands():
	case d.sub != nil:
		delete(a.own, d.sub)
	default:
		a.demand = nil
	}
	a.dropIfUnused()
}

// notifySources notifies all sources until nothing is pending.
func (s *Store) notifySources() {
	for notify := s.nextNotice(); notify != nil; notify = s.nextNotice() {
		notify()
	}
}

// nextNotice records that a source is notified of what is pending, and returns a function that does it, nil if nothing is pending. Demands that
// ended are dropped. Store.mu is held in turns: a demand may begin, end or be dropped meanwhile.
func (s *Store) nextNotice() (notify func()) {
	turn := s.writing(nil)
	turn.lock()
	defer turn.unlock()
	for _, source := range s.sources {
		if len(source.pending) == 0 {
			continue
		}
		pending := source.pending
		source.pending = map[*Demand]struct{}{}
		var begun, ended []*Demand
		for d := range inTurns(&turn, maps.Keys(pending)) {
			switch {
			case d.live() == d.begun:
			case d.live():
				d.begun = true
				begun = append(begun, d)
			default:
				ended = append(ended, d)
				d.drop()
				s.dropIfUnused(d.ask.table)
			}
		}
		return func() { source.notify(begun, ended) }
	}
	s.notifying = false
	return nil
}

// demanded adds the demand of a subscription to an ask that it has just joined. The caller holds
// Store.mu.
func (a *ask) demanded(sub *subscription) {
	t := a.table
	if a.refused != nil || t.source == nil {
		return
	}
	d := cmp.Or(a.own[sub], a.demand)
	switch {
	case d == nil && (len(a.own) > 0 || t.typeURL == dynparam.MapTypeURL): // TP2, "Non-Cacheability of DPDS"
		d = newDemand(a)
		d.only(sub)
	case d == nil:
		d = newDemand(a)
		d.First, a.demand = sub.stream.id, d
	case d.sub == nil && d.First != sub.stream.id && d.answer.asError().Code() == codes.ResourceExhausted:
		other := newDemand(a)
		other.First, other.answer = sub.stream.id, d.answer
		a.demand = other
		d.update()
		d = other
	}
	d.update()
}

func newDemand(a *ask) *Demand {
	return &Demand{TypeURL: a.table.typeURL, Name: a.spelling, Constraints: a.constraints, ask: a, answer: awaited}
}

// only makes the demand that of one subscription.
func (d *Demand) only(sub *subscription) {
	d.sub, d.Stream, d.Node, d.First = sub, sub.stream.id, sub.stream.node, sub.stream.id
	payNames(&d.payer, sub.stream.usage.peer, 1)
	if d.ask.own == nil {
		d.ask.own = map[*subscription]*Demand{}
	}
	d.ask.own[sub] = d
}

// split replaces a shared demand, whose resource must not be cached, by one of each subscriber.
// The caller holds Store.mu.
func (d *Demand) split() {
	a := d.ask
	a.demand = nil
	d.update()
	for sub := range a.subscriptions() {
		sub.keepSent(a, d.answer)
		one := newDemand(a)
		one.only(sub)
		one.update()
	}
}

// entryOf returns the entry for one of the subscriptions of an ask: what a source has answered or a function has returned, or the choice.
// The caller holds Store.mu for writing, or for reading and stream.mu.
func (a *ask) entryOf(sub *subscription) *entry {
	if d := cmp.Or(a.own[sub], a.demand); d != nil {
		return d.answer
	}
	if a.choice.isComputed() {
		if c := sub.computed[a.name]; c != nil && c.by == a.choice.computed {
			return c.entry
		}
		return awaited
	}
	return a.choice
}

// answered stores an answer, and makes it due for the subscribers. It reports whether anything
// changed. The caller holds Store.mu.
func (d *Demand) answered(e *entry, version uint64) bool {
	old := d.answer
	if !d.stands() || old != awaited && (old == e || old != nil && old.sameBytes(e)) {
		return false
	}
	if r := e.asResource(); r != nil && r.doNotCache && d.sub == nil {
		d.split()
		return true
	}
	d.answer = e
	d.ask.table.version = version
	if d.sub != nil {
		if d.live() { // else the client has left, and the source has not been notified yet
			d.notify(d.sub, old)
		}
		return true
	}
	for sub := range d.ask.subscriptions() {
		d.notify(sub, old)
	}
	return true
}

// notify makes the answer due for one subscriber. An answer of nil to a collection says that its members are there.
func (d *Demand) notify(sub *subscription, old *entry) {
	sub.refuseWildcard(d.ask)
	sub.entryChanged(d.ask, old, d.answer != nil || d.Collection())
}
