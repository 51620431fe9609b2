package relay

import (
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// upstream is a client of the management servers, which has one stream to each of them that it needs.
type upstream struct {
	client *xdsclient.XDSClient
	// types are the types of resources that the stream was used for.
	types map[string]*xdsclient.ResourceType
	// users counts the subscriptions of an upstream that is a single client's.
	users int
}

// newUpstream makes an upstream of a peer. The caller holds r.mu.
func (r *Relay) newUpstream(by string, cfg *bootstrap.Config) (*upstream, error) {
	if err := r.upstreams.Take(by, 1); err != nil {
		return nil, errTooMany(err)
	}
	client, err := xdsclient.New(cfg, r.opts.Client)
	if err != nil {
		r.upstreams.Give(by, 1)
		return nil, err
	}
	return &upstream{client: client, types: make(map[string]*xdsclient.ResourceType)}, nil
}

// newOwnUpstream makes the upstream of a single client, whose resources are not kept on disk. If there are too many, a group that
// lingers makes room.
func (r *Relay) newOwnUpstream(g *group, d *controlplane.Demand) (*upstream, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errClosed
	}
	u, err := r.newUpstream(g.by, uncached(r.opts.Bootstrap.WithNode(ownNode(d.Node))))
	if err != nil {
		r.running.Go(func() { r.endIdlest() })
	}
	return u, err
}

// closeUpstream closes an upstream, without waiting for it.
func (r *Relay) closeUpstream(by string, u *upstream) {
	r.upstreams.Give(by, 1)
	r.running.Go(u.client.Close)
}

// typeOf returns a type of resources, or nil if there are too many: a stream has each type until it ends. Those of xDS there
// are always.
func (u *upstream) typeOf(typeURL string) *xdsclient.ResourceType {
	if t := u.types[typeURL]; t != nil {
		return t
	}
	name := typeurl.Name(typeURL)
	if known, _ := xdsname.CheckType(name); (!known || typeURL != typeurl.Prefix+name) && len(u.types) >= maxTypes {
		return nil
	}
	t := newType(typeURL)
	u.types[typeURL] = t
	return t
}

// upstreamFor returns the upstream and the type for a demand: the upstream that the group shares, or that of a single client, under the
// client's own node. free gives back what the subscription has of the limits. The error is RESOURCE_EXHAUSTED. The caller holds g.mu.
func (g *group) upstreamFor(d *controlplane.Demand) (u *upstream, typ *xdsclient.ResourceType, free func(), err error) {
	u = g.shared
	if d.Stream != 0 {
		if u = g.own[d.Stream]; u == nil {
			if u, err = g.relay.newOwnUpstream(g, d); err != nil {
				return nil, nil, nil, err
			}
			g.own[d.Stream] = u
		}
	}
	if typ = u.typeOf(d.TypeURL); typ == nil { // the client of an own upstream has subscribed to something else there, so that it stays
		return nil, nil, nil, errTooManyTypes()
	}
	if d.Stream == 0 {
		err = g.charge(d.First)
		return u, typ, func() { g.names.Give(d.First, 1) }, err
	}
	u.users++
	return u, typ, func() {
		if u.users--; u.users == 0 {
			delete(g.own, d.Stream)
			g.relay.closeUpstream(g.by, u)
		}
	}, nil
}
