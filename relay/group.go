package relay

import (
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/controlplane"
	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/xdsclient"
)

// group is what a relay has for the clients that are one node upstream: a store that they are
// served from, a client of the management servers, and a subscription for each demand of the
// store.
type group struct {
	relay  *Relay
	key    string
	store  *controlplane.Store
	shared *xdsclient.XDSClient

	// use is guarded by Relay.mu.
	use

	mu     sync.Mutex
	closed bool
	subs   map[subscriptionKey]*subscription
	// variants has the subscriptions to resources by type and name.
	variants map[resourceName][]*subscription
	// found has subscriptions by the variant that they have, if it is shared.
	found map[memberKey]*subscription
	// own has the clients of the management servers for what single streams subscribe to, by
	// the ID of the stream.
	own map[uint64]*ownClient
	// lingering counts the subscriptions without a demand.
	lingering int
	members   members
	// dirty are the subscriptions whose last change is not in the store yet, and done the callbacks
	// that the client of the management servers waits for until it is.
	dirty map[*subscription]struct{}
	done  []func()
	// stale is set if the store is behind for members too.
	stale bool
	// flushing is set while a goroutine updates the store. Only that uses version, which is the
	// store's.
	flushing bool
	version  uint64
	away     away
}

// use counts the streams of a group; idle runs while there is none, since idleSince.
type use struct {
	clients   int
	idle      *time.Timer
	idleSince time.Time
}

// ownClient is the client of the management servers for one stream.
type ownClient struct {
	client *xdsclient.XDSClient
	// users counts the subscriptions.
	users int
}

// subscriptionKey identifies a subscription upstream.
type subscriptionKey struct {
	typeURL, name, constraints string
	// stream is 0 if the subscription is shared.
	stream uint64
}

// resourceName identifies a resource with all its variants.
type resourceName struct{ typeURL, name string }

func (k subscriptionKey) resource() resourceName { return resourceName{k.typeURL, k.name} }

func keyOf(d *controlplane.Demand) subscriptionKey {
	return subscriptionKey{d.TypeURL, xdsname.Canonical(d.Name), d.Constraints.Key(), d.Stream}
}

func newGroup(r *Relay, key string, shared *xdsclient.XDSClient) *group {
	g := &group{
		relay: r, key: key, shared: shared, store: controlplane.NewStore(),
		subs:    make(map[subscriptionKey]*subscription),
		own:     make(map[uint64]*ownClient),
		members: make(members),

		variants: make(map[resourceName][]*subscription),
		found:    make(map[memberKey]*subscription),
		dirty:    make(map[*subscription]struct{}),
	}
	g.store.OnDemand("", g.demand)
	return g
}

// leave removes a client. With the last one, the group ends after a while.
func (g *group) leave() {
	r := g.relay
	r.mu.Lock()
	defer r.mu.Unlock()
	if g.clients--; g.clients > 0 || r.closed {
		return
	}
	g.idleSince = time.Now()
	g.idle = time.AfterFunc(max(r.opts.Linger, 0), g.end)
	if r.opts.FoldBy.private() { // no client can join it again
		g.idle.Reset(0)
	}
}

// end ends a group without clients.
func (g *group) end() {
	r := g.relay
	r.mu.Lock()
	ended := g.clients == 0 && r.groups[g.key] == g
	if ended {
		delete(r.groups, g.key)
		delete(r.byStore, g.store)
		g.idle.Stop()
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
	for _, o := range g.own {
		g.relay.closeClient(o.client)
	}
	g.relay.closeClient(g.shared)
	for _, done := range g.done {
		done()
	}
	g.done = nil
}

// addTo adds the group to the stats of the relay.
func (g *group) addTo(s *Stats) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s.Subscriptions += len(g.subs)
	s.Lingering += g.lingering
	s.Cached += len(g.members)
	for _, sub := range g.subs {
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
	// The requests of one call go out together, those to unsubscribe after the others.
	g.shared.Batch(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.closed {
			return
		}
		for _, d := range begun {
			g.begin(d)
		}
		for _, d := range ended {
			g.endDemand(d)
		}
		g.flushLater()
	})
}

// begin subscribes upstream to what a demand is for, unless the relay still is.
func (g *group) begin(d *controlplane.Demand) {
	key := keyOf(d)
	s := g.subs[key]
	if s == nil {
		s = g.newSubscription(key, d)
		g.subs[key] = s
		g.addVariant(s, d)
	} else if s.demand == nil {
		stopTimer(&s.linger)
		g.lingering--
	}
	s.demand = d
	if s.isKnown() {
		g.dirty[s] = struct{}{}
	}
}

// addVariant makes a subscription to a resource found by its name. If the relay already has the
// very variant that the constraints spell out, the subscribers get it at once: no other one can be
// preferred. Else upstream has to be asked first, as a larger value would be preferred (xRFC TP2,
// "Matching Behavior and Best Practices").
func (g *group) addVariant(s *subscription, d *controlplane.Demand) {
	if d.Collection() || s.err != nil {
		return
	}
	if p, ok := d.Constraints.Parameters(); ok && !d.Constraints.IsZero() && s.key.stream == 0 {
		other := g.found[memberKey{s.key.typeURL, s.key.name, p.Key()}]
		if other != nil && other.err == nil && !other.expiry.expired {
			s.raw = other.raw
			s.restartExpiry()
		}
	}
	of := append(g.variants[s.key.resource()], s)
	g.variants[s.key.resource()], s.place = of, len(of)
}

// removeVariant undoes addVariant.
func (g *group) removeVariant(s *subscription) {
	g.noteVariant(s, nil)
	if s.place == 0 {
		return
	}
	name := s.key.resource()
	of := g.variants[name]
	last := of[len(of)-1]
	of[s.place-1], last.place = last, s.place
	of[len(of)-1], s.place = nil, 0
	if of = of[:len(of)-1]; len(of) == 0 {
		delete(g.variants, name)
		return
	}
	g.variants[name] = of
}

// noteVariant makes the resource of a subscription found by its parameters, if others may get it, in
// place of the one that it had. It is called before s.raw changes.
func (g *group) noteVariant(s *subscription, raw *xdsclient.Raw) {
	if s.raw != nil {
		if key := variantKey(s, s.raw); g.found[key] == s {
			delete(g.found, key)
		}
	}
	if raw != nil && !raw.DoNotCache && !raw.Parameters.IsZero() && s.key.stream == 0 {
		g.found[variantKey(s, raw)] = s
	}
}

func variantKey(s *subscription, raw *xdsclient.Raw) memberKey {
	return memberKey{s.key.typeURL, s.key.name, raw.Parameters.Key()}
}

// endDemand removes a demand from its subscription, which has no subscriber any more.
func (g *group) endDemand(d *controlplane.Demand) {
	s := g.subs[keyOf(d)]
	if s == nil || s.demand != d {
		return
	}
	s.demand, s.rejections = nil, rejections{}
	delete(g.dirty, s)
	wait := g.relay.opts.Linger
	if wait < 0 || !s.worthKeeping() || g.lingering >= maxLingering {
		s.drop()
		return
	}
	g.lingering++
	g.after(&s.linger, wait, func() {
		g.lingering--
		s.drop()
	})
}

// clientFor returns the client of the management servers for a demand.
func (g *group) clientFor(d *controlplane.Demand) (*xdsclient.XDSClient, error) {
	if !g.apart(d) {
		return g.shared, nil
	}
	o := g.own[d.Stream]
	if o == nil {
		c, err := g.relay.newOwnClient(g, d)
		if err != nil {
			return nil, err
		}
		o = &ownClient{client: c}
		g.own[d.Stream] = o
	}
	o.users++
	return o.client, nil
}

// apart reports whether a demand is asked for under the client's own node, on a stream of its own.
// A client that is alone in its group has these anyway.
func (g *group) apart(d *controlplane.Demand) bool {
	return d.Stream != 0 && !g.relay.opts.FoldBy.private()
}

// releaseClient releases what clientFor returned.
func (g *group) releaseClient(stream uint64) {
	o := g.own[stream]
	if o == nil {
		return
	}
	if o.users--; o.users == 0 {
		delete(g.own, stream)
		g.relay.closeClient(o.client)
	}
}

// newOwnClient makes a client of the management servers for a single stream. If there are too many, the
// stream gets one when another has ended.
func (r *Relay) newOwnClient(g *group, d *controlplane.Demand) (*xdsclient.XDSClient, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.newClient(ownNode(d.Node), false)
	if status.Code(err) == codes.ResourceExhausted && !r.closed {
		w := r.waiting[d.Stream]
		w.group, w.subscriptions = g, w.subscriptions+1
		r.waiting[d.Stream] = w
		r.running.Go(func() { r.endIdlest() })
	}
	return c, err
}

// admit lets a stream that waits for a client of its own try again. The caller holds r.mu.
func (r *Relay) admit() {
	for stream, w := range r.waiting {
		delete(r.waiting, stream)
		if !r.closed {
			r.running.Go(func() { w.group.retry(stream) })
		}
		return
	}
}

// waiting is a stream that waits for a client of the management servers of its own, for some
// subscriptions.
type waiting struct {
	group         *group
	subscriptions int
}

// waitsNoMore is for a subscription that ended.
func (r *Relay) waitsNoMore(s *subscription) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w, ok := r.waiting[s.key.stream]
	if w.subscriptions--; ok && w.subscriptions > 0 {
		r.waiting[s.key.stream] = w
		return
	}
	delete(r.waiting, s.key.stream)
}

// retry subscribes upstream to what a stream was refused for want of a client of its own.
func (g *group) retry(stream uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	tried := false
	for key, s := range g.subs {
		if key.stream == stream && s.refused && s.demand != nil && !g.closed {
			tried = true
			s.subscribe(s.demand)
			g.addVariant(s, s.demand)
		}
	}
	if !tried { // it has left
		g.relay.mu.Lock()
		g.relay.admit()
		g.relay.mu.Unlock()
	}
}

// changed records a change of a subscription. The management server is not read further until the store
// has it, and done is called.
func (g *group) changed(s *subscription, done func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		done()
		return
	}
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
				s.notePassed(g.version)
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
	version, err := g.store.Update(all)
	if err == nil {
		g.version = version
		return
	}
	if len(changes) == 1 {
		g.relay.log.Error("a resource cannot be passed on", "error", err)
		return
	}
	for _, change := range changes {
		g.update([]func(*controlplane.Tx){change})
	}
}
