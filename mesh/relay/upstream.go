package relay

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// ownUpstream is the client of the management servers for what a single client must not share.
type ownUpstream struct {
	client *xdsclient.XDSClient
	// users counts the subscriptions.
	users int
}

// newUpstream makes a client of the management servers, which has one stream to each of them that it needs, for a peer. The caller
// holds r.mu.
func (r *Relay) newUpstream(by string, cfg *bootstrap.Config) (*xdsclient.XDSClient, error) {
	if err := r.upstreams.Take(by, 1); err != nil {
		return nil, status.Errorf(codes.ResourceExhausted,
			"the xDS relay has %v: have one group of clients (--one-group), or raise the limit (--max-upstreams)", err)
	}
	client, err := xdsclient.New(cfg, r.opts.Client)
	if err != nil {
		r.upstreams.Give(by, 1)
	}
	return client, err
}

// newOwnUpstream makes the upstream of a single client, whose resources are not kept on disk. If there are too many, a group that
// lingers makes room.
func (r *Relay) newOwnUpstream(g *group, d *controlplane.Demand) (*ownUpstream, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errClosed
	}
	client, err := r.newUpstream(g.by, uncached(r.opts.Bootstrap.WithNode(ownNode(d.Node))))
	if err != nil {
		r.running.Go(func() { r.endIdlest() })
		return nil, err
	}
	return &ownUpstream{client: client}, nil
}

// closeUpstream closes what newUpstream made, without waiting for it.
func (r *Relay) closeUpstream(by string, client *xdsclient.XDSClient) {
	r.upstreams.Give(by, 1)
	r.running.Go(client.Close)
}

// typeOf returns a type of resources, or nil if there are too many: a stream has each type until it ends. Those of xDS there
// are always. The caller holds g.mu.
func (g *group) typeOf(typeURL string) *xdsclient.ResourceType {
	if t := g.types[typeURL]; t != nil {
		return t
	}
	name := typeurl.Name(typeURL)
	if known, _ := xdsname.CheckType(name); (!known || typeURL != typeurl.Prefix+name) && len(g.types) >= maxTypes {
		return nil
	}
	t := newType(typeURL)
	g.types[typeURL] = t
	return t
}

// upstreamFor returns the client of the management servers and the type for a demand: the client that the group shares, or one for a
// single client, under its own node. free gives back what the subscription has of the limits. The error is RESOURCE_EXHAUSTED. The caller
// holds g.mu.
func (g *group) upstreamFor(d *controlplane.Demand) (client *xdsclient.XDSClient, typ *xdsclient.ResourceType, free func(), err error) {
	if typ = g.typeOf(d.TypeURL); typ == nil {
		return nil, nil, nil, status.Errorf(codes.ResourceExhausted, "the xDS relay forwards at most %d types of resources on one stream, those of xDS aside", maxTypes)
	}
	if d.Stream == 0 {
		err = g.charge(d.First)
		return g.shared, typ, func() { g.names.Give(d.First, 1) }, err
	}
	u := g.own[d.Stream]
	if u == nil {
		if u, err = g.relay.newOwnUpstream(g, d); err != nil {
			return nil, nil, nil, err
		}
		g.own[d.Stream] = u
	}
	u.users++
	return u.client, typ, func() {
		if u.users--; u.users == 0 {
			delete(g.own, d.Stream)
			g.relay.closeUpstream(g.by, u.client)
		}
	}, nil
}
