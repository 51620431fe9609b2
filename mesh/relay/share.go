package relay

import (
	"context"
	"maps"
	"slices"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/peer"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/mesh/internal/access"
	"github.com/dynxds/dynxds/xdsclient"
)

// Two limits have a share for each of those who use them up, which shrinks as the limit is approached
// (bounds.Quota), so that there is room for one more whatever the present ones take:
//
//   - a client, of the subscriptions on the upstream that its group shares;
//   - a peer, which is an address or a certificate, of the upstreams, by the groups that it began.
//
// A refused subscription is an error for the clients that asked for it. Upstream is asked when there is room.

// shares are a group's shares of the limits. Guarded by group.mu.
type shares struct {
	// names limits the subscriptions on the upstream that the group shares, and payers are the clients that
	// pay for them, by the ID of their stream.
	names  *bounds.Quota
	payers map[uint64]*payer
	// short are the payers for some of whose subscriptions there was no room.
	short map[*payer]struct{}
	// waiting are the subscriptions for which there was no upstream.
	waiting map[*subscription]struct{}
}

func newShares(r *Relay) shares {
	return shares{
		names:   bounds.NewQuota("subscriptions of a group of clients", int64(r.opts.MaxGroupSubscriptions)),
		payers:  make(map[uint64]*payer),
		short:   make(map[*payer]struct{}),
		waiting: make(map[*subscription]struct{}),
	}
}

// payer is what a client has of the subscriptions on the upstream that its group shares: those that the client
// was the first to subscribe to. Guarded by group.mu.
type payer struct {
	stream uint64
	names  *bounds.Share
	// refused are the subscriptions for which there was no room.
	refused map[*subscription]struct{}
}

// charge has a client pay for a subscription. If there is no room, those that linger make room. The caller
// holds g.mu.
func (g *group) charge(s *subscription, stream uint64) error {
	p := g.payers[stream]
	if p == nil {
		p = &payer{stream: stream, names: g.names.Share(), refused: make(map[*subscription]struct{})}
		g.payers[stream] = p
	}
	err := p.names.Take(1)
	for idle := range g.lingering {
		if err == nil {
			break
		}
		idle.drop()
		err = p.names.Take(1)
	}
	if err != nil {
		p.refused[s], g.short[p] = struct{}{}, struct{}{}
		s.free = func() { delete(p.refused, s); g.paid(p) }
		return errTooManyNames(err)
	}
	s.free = func() { p.names.Give(1); g.paid(p) }
	return nil
}

// paid forgets a client that pays for nothing.
func (g *group) paid(p *payer) {
	if len(p.refused) > 0 {
		return
	}
	if delete(g.short, p); p.names.Held() == 0 && g.payers[p.stream] == p {
		delete(g.payers, p.stream)
	}
}

// retryNames begins the refused subscriptions, as far as there is room now. The caller holds g.mu.
func (g *group) retryNames() {
	for _, p := range slices.Collect(maps.Keys(g.short)) {
		for s := range p.refused {
			if !g.retry(s) {
				break
			}
		}
	}
}

// retry begins a refused subscription. It reports whether there was room. The caller holds g.mu.
func (g *group) retry(s *subscription) bool {
	s.free()
	s.subscribe(s.demand)
	s.borrow(s.demand)
	if s.refused {
		return false
	}
	if s.isKnown() {
		g.dirty[s] = struct{}{}
	}
	return true
}

// newUpstream makes an upstream. If cached is set, its resources are kept on disk, if the bootstrap has a
// resource_cache: those of single clients are not. The caller holds r.mu.
func (r *Relay) newUpstream(by *groupPeer, node *corepb.Node, cached bool) (*upstream, error) {
	if err := by.upstreams.Take(1); err != nil {
		return nil, errTooMany(err)
	}
	cfg := r.opts.Bootstrap.WithNode(node)
	if !cached {
		cfg.ResourceCache.Directory = ""
	}
	client, err := xdsclient.New(cfg, r.opts.Client...)
	if err != nil {
		by.upstreams.Give(1)
		return nil, err
	}
	return &upstream{client: client, types: make(map[string]*upstreamType)}, nil
}

// newOwnUpstream makes an upstream that the group does not share. If there are too many, the group is called
// when others have ended.
func (r *Relay) newOwnUpstream(g *group, node *corepb.Node) (*upstream, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errClosed
	}
	u, err := r.newUpstream(g.by, node, false)
	if err != nil {
		r.waiting[g] = struct{}{}
		r.running.Go(func() { r.endIdlest() })
	}
	return u, err
}

// closeUpstream closes an upstream, without waiting for it.
func (r *Relay) closeUpstream(by *groupPeer, u *upstream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	by.upstreams.Give(1)
	r.forgetPeer(by)
	r.running.Go(u.client.Close)
	r.admit()
}

// admit has a group try again, of those that wait for more upstreams, whose peer has the fewest. The caller holds r.mu.
func (r *Relay) admit() {
	var next *group
	for g := range r.waiting {
		if next == nil || g.by.upstreams.Held() < next.by.upstreams.Held() {
			next = g
		}
	}
	if next == nil || r.closed {
		return
	}
	delete(r.waiting, next)
	r.running.Go(next.retryUpstreams)
}

// retryUpstreams begins the subscriptions that wait for an upstream. If there is still room, it is the next group's turn.
func (g *group) retryUpstreams() {
	g.mu.Lock()
	defer g.mu.Unlock()
	refused := false
	for s := range g.waiting {
		if g.closed {
			break
		}
		refused = !g.retry(s) || refused
	}
	g.flushLater()
	if !refused {
		g.relay.mu.Lock()
		defer g.relay.mu.Unlock()
		g.relay.admit()
	}
}

// groupPeer is what a peer has of the upstreams: those of the groups that it was the first to join. Guarded by Relay.mu.
type groupPeer struct {
	key       string
	upstreams *bounds.Share
}

// peerOf returns the peer of a client. The caller holds r.mu.
func (r *Relay) peerOf(ctx context.Context) *groupPeer {
	from, _ := peer.FromContext(ctx)
	key := access.Peer(from)
	p := r.peers[key]
	if p == nil {
		p = &groupPeer{key, r.upstreams.Share()}
		r.peers[key] = p
	}
	return p
}

// forgetPeer forgets a peer that has no upstream. The caller holds r.mu.
func (r *Relay) forgetPeer(p *groupPeer) {
	if p.upstreams.Held() == 0 && r.peers[p.key] == p {
		delete(r.peers, p.key)
	}
}

// warnEvery is the least time between two lines about refused subscriptions.
const warnEvery = time.Minute

// warnRefused logs that a limit is reached.
func (r *Relay) warnRefused(err error) {
	now := time.Now()
	last := r.warned.Load()
	if (last == nil || now.Sub(*last) > warnEvery) && r.warned.CompareAndSwap(last, &now) {
		r.log.Warn("subscriptions refused: limit reached", "error", err)
	}
}
