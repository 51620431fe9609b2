package relay

import (
	"slices"
	"sync"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/access"
)

// group serves the clients that are one node upstream: a store that they are
// served from, a client of the management servers, and a subscription for each demand of the
// store.
type group struct {
	relay *Relay
	key   string
	store *controlplane.Store
	node  *corepb.Node
	// shared is the upstream for subscriptions that clients share.
	shared *upstream

	// use is guarded by Relay.mu.
	use

	mu     sync.Mutex
	closed bool
	subs   map[subscriptionKey]*subscription
	// found has subscriptions by the variant that they have, if it is shared.
	found map[memberKey]*subscription
	// own has the upstreams that the group does not share.
	own map[ownKey]*upstream
	shares
	// lingering are the subscriptions without a demand.
	lingering map[*subscription]struct{}
	members   members
	// dirty are the subscriptions whose last change is not in the store yet, and done the callbacks
	// that the client of the management servers waits for until it is.
	dirty map[*subscription]struct{}
	done  []func()
	// stale is set if the store is behind for members too.
	stale bool
	// flushing is set while a goroutine updates the store.
	flushing bool
	away     away
}

// use counts the streams of a group. idle runs while there is none, since idleSince.
type use struct {
	clients   int
	idle      *time.Timer
	idleSince time.Time
	// by is who joined first, and has the upstreams of the group.
	by *groupPeer
	// nodeBytes is the size of the node in memory.
	nodeBytes int64
}

// subscriptionKey identifies a subscription upstream.
type subscriptionKey struct {
	typeURL, name, constraints string
	// stream is 0 if the subscription is shared.
	stream uint64
}

func keyOf(d *controlplane.Demand) subscriptionKey {
	return subscriptionKey{d.TypeURL, xdsname.Canonical(d.Name), d.Constraints.Key(), d.Stream}
}

// newGroup makes a group for a client of a peer. The caller holds r.mu.
func (r *Relay) newGroup(key string, node *corepb.Node, by *groupPeer) (*group, error) {
	g := &group{
		relay: r, key: key, node: node, store: controlplane.NewStore(),
		shares: newShares(r), use: use{by: by, nodeBytes: int64(len(key)) + access.NodeWeight(node)},
		subs:      make(map[subscriptionKey]*subscription),
		own:       make(map[ownKey]*upstream),
		lingering: make(map[*subscription]struct{}),
		members:   make(members),
		found:     make(map[memberKey]*subscription),
		dirty:     make(map[*subscription]struct{}),
	}
	var err error
	if g.shared, err = r.newUpstream(by, node, true); err != nil {
		r.forgetPeer(by)
		return nil, err
	}
	g.store.OnDemand("", g.demand)
	return g, nil
}

// leave removes a client. With the last one, the group ends after a while, or others do, if the nodes of those that linger are too
// large together.
func (g *group) leave() {
	r := g.relay
	r.mu.Lock()
	if g.clients--; g.clients > 0 || r.closed {
		r.mu.Unlock()
		return
	}
	g.idleSince = time.Now()
	g.idle = time.AfterFunc(max(r.opts.Linger, 0), g.end)
	r.idleNodes += g.nodeBytes
	tooLarge := r.idleNodes > r.maxIdleNodes
	r.mu.Unlock()
	for tooLarge && r.endIdlest() {
		r.mu.Lock()
		tooLarge = r.idleNodes > r.maxIdleNodes
		r.mu.Unlock()
	}
}

// end ends a group without clients.
func (g *group) end() {
	r := g.relay
	r.mu.Lock()
	ended := g.clients == 0 && r.groups[g.key] == g
	if ended {
		delete(r.groups, g.key)
		delete(r.waiting, g)
		g.idle.Stop()
		r.idleNodes -= g.nodeBytes
		r.running.Add(1)
	}
	r.mu.Unlock()
	if ended {
		defer r.running.Done()
		g.close()
	}
}

// close ends all subscriptions.
func (g *group) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for _, s := range g.subs {
		s.close()
		g.forgetReach(s)
	}
	for _, e := range g.members {
		e.expiry.stop()
	}
	g.relay.lingering.Add(-int64(len(g.lingering)))
	g.relay.closeUpstream(g.by, g.shared)
	for _, done := range g.done {
		done()
	}
	g.done = nil
}

// addTo adds the group to the stats of the relay.
func (g *group) addTo(s *Stats) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s.Lingering += len(g.lingering)
	s.Cached += len(g.members)
	for _, sub := range g.subs {
		if sub.refused {
			s.Refused++
		} else {
			s.Subscriptions++
		}
		if sub.raw != nil {
			s.Cached++
		}
	}
	if g.away.subs > 0 {
		s.Unreachable++
		if s.UnreachableSince.IsZero() || g.away.since.Before(s.UnreachableSince) {
			s.UnreachableSince = g.away.since
		}
	}
}

// isAway reports whether management servers are unreachable.
func (g *group) isAway() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.away.subs > 0
}

// demand is the store's controlplane.Source.
func (g *group) demand(begun, ended []*controlplane.Demand) {
	// The requests of one call go out together, unsubscriptions after the others.
	g.shared.client.Batch(func() {
		inPieces(g, begun, g.begin)
		inPieces(g, ended, g.endDemand)
		g.mu.Lock()
		defer g.mu.Unlock()
		if !g.closed {
			g.retryNames()
			g.flushLater()
		}
	})
}

// piece is for how many demands g.mu is held at a time: a client may subscribe to 100,000 names in one request, and
// others wait for g.mu.
const piece = 100

// inPieces calls f for all elements, with g.mu held.
func inPieces[E any](g *group, all []E, f func(E)) {
	for some := range slices.Chunk(all, piece) {
		g.mu.Lock()
		for _, e := range some {
			if !g.closed {
				f(e)
			}
		}
		g.mu.Unlock()
	}
}

// begin subscribes upstream to the resource of a demand, unless the relay still is subscribed to it.
func (g *group) begin(d *controlplane.Demand) {
	key := keyOf(d)
	s := g.subs[key]
	if s == nil {
		s = g.newSubscription(key, d)
		g.subs[key] = s
		s.borrow(d)
	} else if s.demand == nil {
		stopTimer(&s.linger)
		s.endLinger()
	}
	s.demand = d
	if s.refused { // there may be room for this client
		g.retry(s)
	}
	if s.isKnown() {
		g.dirty[s] = struct{}{}
	}
}

// borrow has a subscription start with the very variant that its constraints spell out, if the relay has that:
// no other one can be preferred. Else upstream has to be asked first, as a larger value would be
// preferred (xRFC TP2, "Matching Behavior and Best Practices").
func (s *subscription) borrow(d *controlplane.Demand) {
	if d.Collection() || s.err != nil || s.key.stream != 0 || d.Constraints.IsZero() {
		return
	}
	p, ok := d.Constraints.Parameters()
	if !ok {
		return
	}
	other := s.group.found[memberKey{s.key.typeURL, s.key.name, p.Key()}]
	if other != nil && other.err == nil && !other.expiry.expired {
		s.raw = other.raw
		s.restartExpiry()
	}
}

// noteVariant makes the resource of a subscription found by its parameters, if others may get it, in
// place of the one that it had. It is called before s.raw changes.
func (g *group) noteVariant(s *subscription, raw *resource) {
	if s.raw != nil {
		if key := variantKey(s, s.raw); g.found[key] == s {
			delete(g.found, key)
		}
	}
	if raw != nil && !raw.DoNotCache && !raw.Parameters.IsZero() && s.key.stream == 0 {
		g.found[variantKey(s, raw)] = s
	}
}

func variantKey(s *subscription, raw *resource) memberKey {
	return memberKey{s.key.typeURL, s.key.name, raw.Parameters.Key()}
}

// endDemand removes a demand from its subscription, which has no subscriber any more.
func (g *group) endDemand(d *controlplane.Demand) {
	s := g.subs[keyOf(d)]
	if s == nil || s.demand != d {
		return
	}
	s.demand = nil
	delete(g.dirty, s)
	wait := g.relay.opts.Linger
	if wait < 0 || !s.worthKeeping() || len(g.lingering) >= maxLingering || g.relay.lingering.Load() >= maxAllLingering {
		s.drop()
		return
	}
	g.lingering[s] = struct{}{}
	g.relay.lingering.Add(1)
	g.after(&s.linger, wait, func() {
		s.drop()
		g.retryNames()
	})
}

// noted is the call of a watcher: it notes a change of a subscription, unless the watch has ended. The management
// server is not read further until the store has the change, and done is called.
func (s *subscription) noted(done func(), note func()) {
	g := s.group
	g.mu.Lock()
	defer g.mu.Unlock()
	if s.stopped {
		done()
		return
	}
	note()
	g.done = append(g.done, done)
	g.dirty[s] = struct{}{}
	g.flushLater()
}

// flushLater has a goroutine bring the store up to date. The caller holds g.mu.
func (g *group) flushLater() {
	if g.flushing || g.flushed() {
		return
	}
	g.flushing = true
	g.relay.running.Go(g.flush)
}

// flushed reports whether the store is up to date. The caller holds g.mu.
func (g *group) flushed() bool { return len(g.dirty) == 0 && len(g.done) == 0 && !g.stale }

// flush brings the store up to date: each update has all changes since the last one. So the changes of one response are mostly one update, which is sent in the order that
// clients need.
func (g *group) flush() {
	for {
		g.mu.Lock()
		if g.closed || g.flushed() {
			g.flushing = false
			g.mu.Unlock()
			return
		}
		var changes []func(*controlplane.Tx)
		for s := range g.dirty {
			if change := s.answer(); change != nil {
				changes = append(changes, change)
			}
			s.renewed = false
		}
		clear(g.dirty)
		if g.stale {
			changes = slices.Concat(g.members.flush(), changes)
			g.stale = false
		}
		done := g.done
		g.done = nil
		g.mu.Unlock()
		g.update(changes)
		for _, f := range done {
			f()
		}
	}
}

// update changes the store. One change that the store refuses does not hold up the others.
func (g *group) update(changes []func(*controlplane.Tx)) {
	all := func(tx *controlplane.Tx) {
		for _, change := range changes {
			change(tx)
		}
	}
	_, err := g.store.Update(all)
	if err == nil {
		return
	}
	if len(changes) == 1 {
		g.relay.log.Error("cannot forward a resource", "error", err)
		return
	}
	for _, change := range changes {
		g.update([]func(*controlplane.Tx){change})
	}
}
