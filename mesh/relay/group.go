package relay

import (
	"slices"
	"sync"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/access"
	"github.com/dynxds/dynxds/mesh/internal/quota"
	"github.com/dynxds/dynxds/xdsclient"
)

// group serves the clients that are one node upstream: a store that they are
// served from, a client of the management servers, and a subscription for each demand of the
// store.
type group struct {
	relay *Relay
	key   string
	store *controlplane.Store
	// shared is the client of the management servers for subscriptions that clients share.
	shared *xdsclient.XDSClient
	// by is the peer that joined first, and has the upstreams of the group.
	by string
	// nodeBytes is about the size of the node in memory.
	nodeBytes int64

	// clients counts the streams. idle runs while there is none, since idleSince. Relay.mu guards them.
	clients   int
	idle      *time.Timer
	idleSince time.Time

	mu     sync.Mutex
	closed bool
	subs   map[subscriptionKey]*subscription
	// own has the upstreams of single clients, by the ID of their streams, and types the types of resources that clients have subscribed to.
	own   map[uint64]*ownUpstream
	types map[string]*xdsclient.ResourceType
	// names limits the subscriptions on the upstream that the group shares, by the ID of the clients' streams. A client pays for
	// what it was the first to subscribe to.
	names *quota.Quota[uint64]
	// refused are the subscriptions that upstream is not asked for, as a limit was reached, with the errors in their places. again runs
	// while there are any.
	refused map[*subscription]*status.Status
	again   *time.Timer
	// lingering are the subscriptions without a demand.
	lingering map[*subscription]struct{}
	members   map[memberKey]*member
	// dirty is what has changed since it was last brought into the store, with true for what upstream has renewed, and done are the callbacks
	// that the client of the management servers waits for until that is so.
	dirty map[answer]bool
	done  []func()
	// flushing is set while a goroutine updates the store.
	flushing bool
}

// answer is what upstream has answered, for a subscription or about a member of collections.
type answer interface {
	// change changes the store so that it has the answer, and the heartbeat of a renewed one. The caller holds group.mu.
	change(tx *controlplane.Tx, renewed bool)
}

// subscriptionKey identifies a subscription upstream.
type subscriptionKey struct {
	typeURL, name, constraints string
	// stream is 0 if the subscription is shared.
	stream uint64
}

func keyOf(d *controlplane.Demand) subscriptionKey {
	return subscriptionKey{d.TypeURL, d.Name, d.Constraints.Key(), d.Stream}
}

// newGroup makes a group for a client of a peer. The caller holds r.mu.
func (r *Relay) newGroup(key string, node *corepb.Node, by string) (*group, error) {
	g := &group{
		relay: r, key: key, store: controlplane.NewStore(), by: by, nodeBytes: int64(len(key)) + access.NodeWeight(node),
		names:     quota.New[uint64]("subscriptions of a group of clients", int64(r.opts.MaxGroupSubscriptions)),
		refused:   make(map[*subscription]*status.Status),
		subs:      make(map[subscriptionKey]*subscription),
		own:       make(map[uint64]*ownUpstream),
		types:     make(map[string]*xdsclient.ResourceType),
		lingering: make(map[*subscription]struct{}),
		members:   make(map[memberKey]*member),
		dirty:     make(map[answer]bool),
	}
	var err error
	if g.shared, err = r.newUpstream(by, r.opts.Bootstrap.WithNode(node)); err != nil {
		return nil, err
	}
	g.store.OnDemand("", g.demand)
	return g, nil
}

// leave removes a client. With the last one, the group ends after a while, or at once if there is no room for its node.
func (g *group) leave() {
	r := g.relay
	r.mu.Lock()
	defer r.mu.Unlock()
	if g.clients--; g.clients > 0 || r.closed {
		return
	}
	linger := max(r.opts.Linger, 0)
	if r.idleNodes.Check(g.by, g.nodeBytes) != nil {
		linger = 0
	}
	r.idleNodes.Add(g.by, g.nodeBytes)
	g.idleSince = time.Now()
	g.idle = time.AfterFunc(linger, g.end)
}

// end ends a group without clients.
func (g *group) end() {
	r := g.relay
	r.mu.Lock()
	ended := g.clients == 0 && r.groups[g.key] == g
	if ended {
		delete(r.groups, g.key)
		g.idle.Stop()
		r.idleNodes.Give(g.by, g.nodeBytes)
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
	stopTimer(&g.again)
	for _, s := range g.subs {
		s.close()
	}
	for _, m := range g.members {
		stopTimer(&m.ttl)
	}
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
	s.Refused += len(g.refused)
	s.Subscriptions += len(g.subs) - len(g.refused)
	s.Cached += len(g.members)
	away := 0
	for _, sub := range g.subs {
		if sub.raw != nil {
			s.Cached++
		}
		if !sub.isAway() {
			continue
		}
		away = 1
		if s.UnreachableSince.IsZero() || sub.awaySince.Before(s.UnreachableSince) {
			s.UnreachableSince = sub.awaySince
		}
	}
	s.Unreachable += away
}

// demand is the store's controlplane.Source.
func (g *group) demand(begun, ended []*controlplane.Demand) {
	// The requests of one call go out together, unsubscriptions after the others.
	g.shared.Batch(func() {
		g.each(begun, g.begin)
		g.each(ended, g.endDemand)
		g.mu.Lock()
		defer g.mu.Unlock()
		g.flushLater()
	})
}

// each calls f for all demands, with g.mu held for one at a time: a client may subscribe to 100,000 names in one request, and others
// wait for g.mu.
func (g *group) each(all []*controlplane.Demand, f func(*controlplane.Demand)) {
	for _, d := range all {
		g.mu.Lock()
		if !g.closed {
			f(d)
		}
		g.mu.Unlock()
	}
}

// begin subscribes upstream to the resource of a demand, unless the relay still is subscribed to it.
func (g *group) begin(d *controlplane.Demand) {
	key := keyOf(d)
	s := g.subs[key]
	if s == nil {
		s = &subscription{group: g, key: key, demand: d}
		g.subs[key] = s
		s.subscribe()
	} else {
		s.endLinger()
		s.demand = d
		if g.refused[s] != nil { // there may be room for this client
			s.subscribe()
		}
	}
	if s.isKnown() {
		g.dirty[s] = false
	}
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
	if wait < 0 || !s.worthKeeping() || g.relay.lingering.Take(g, 1) != nil {
		s.drop()
		return
	}
	g.lingering[s] = struct{}{}
	g.after(&s.linger, wait, s.drop)
}

// changed has the store brought up to date with an answer. renewed says that upstream has extended the TTL of its resource. The caller
// holds g.mu.
func (g *group) changed(a answer, renewed bool) {
	g.dirty[a] = g.dirty[a] || renewed
	g.flushLater()
}

// flushLater has a goroutine bring the store up to date. The caller holds g.mu.
func (g *group) flushLater() {
	if !g.closed && !g.flushing {
		g.flushing = true
		g.relay.running.Go(g.flush)
	}
}

// flush brings the store up to date: each update has all changes since the last one. So the changes of one response are mostly one update, which is sent in the order that
// clients need. One change that the store refuses does not hold up the others.
func (g *group) flush() {
	for more := true; more; {
		var changed map[answer]bool
		var done []func()
		_, err := g.store.Update(func(tx *controlplane.Tx) {
			g.mu.Lock()
			defer g.mu.Unlock()
			if g.closed {
				return
			}
			changed, done = g.dirty, g.done
			g.dirty, g.done = make(map[answer]bool), nil
			for a, renewed := range changed {
				a.change(tx, renewed)
			}
		})
		if err != nil {
			g.updateEach(changed)
		}
		for _, f := range done {
			f()
		}
		g.mu.Lock()
		more = !g.closed && len(g.dirty)+len(g.done) > 0
		g.flushing = more
		g.mu.Unlock()
	}
}

// updateEach makes the changes one by one, those of members first: a collection has them when it is answered.
func (g *group) updateEach(changed map[answer]bool) {
	var members, others []answer
	for a := range changed {
		if _, isMember := a.(*member); isMember {
			members = append(members, a)
		} else {
			others = append(others, a)
		}
	}
	for _, a := range slices.Concat(members, others) {
		_, err := g.store.Update(func(tx *controlplane.Tx) {
			g.mu.Lock()
			defer g.mu.Unlock()
			a.change(tx, changed[a])
		})
		if err != nil {
			g.relay.log.Error("cannot forward a resource", "error", err)
		}
	}
}
