package relay

import (
	"github.com/dynxds/dynxds/controlplane"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/xdsclient"
)

// upstream is a client of the management servers, which has one stream to each of them that it needs.
type upstream struct {
	client *xdsclient.XDSClient
	// types are the types of resources that the stream was used for.
	types map[string]*xdsclient.ResourceType
	// invented counts the types that are not those of xDS.
	invented int
	// users counts the subscriptions, but for the upstream that a group shares.
	users int
}

// typeOf returns a type of resources, or nil if there are too many that clients have invented: a stream has
// each type until it ends.
func (u *upstream) typeOf(typeURL string) *xdsclient.ResourceType {
	if t := u.types[typeURL]; t != nil {
		return t
	}
	known, _ := xdsname.CheckType(typeurl.Name(typeURL))
	if !known || typeURL != typeurl.Prefix+typeurl.Name(typeURL) {
		if u.invented == maxTypes {
			return nil
		}
		u.invented++
	}
	t := newType(typeURL)
	u.types[typeURL] = t
	return t
}

// ownKey identifies an upstream that a group does not share.
type ownKey struct {
	// stream is that of the client. The upstream ends when nothing is left that the client was the first to
	// subscribe to.
	stream uint64
	// types is set if the upstream is for types that the client invented, under the node of the group;
	// otherwise it is for resources that must not be cached, under the client's node.
	types bool
}

// upstreamFor returns the upstream and the type for a demand, and what gives back what the demand uses of
// them. The error is RESOURCE_EXHAUSTED. The caller holds g.mu.
func (g *group) upstreamFor(s *subscription, d *controlplane.Demand) (*upstream, *xdsclient.ResourceType, error) {
	if g.apart(d) {
		return g.ownUpstream(s, d, ownKey{stream: d.Stream})
	}
	typ := g.shared.typeOf(d.TypeURL)
	if typ == nil {
		return g.ownUpstream(s, d, ownKey{stream: d.First, types: true})
	}
	if err := g.charge(s, d.First); err != nil {
		return nil, nil, err
	}
	return g.shared, typ, nil
}

// ownUpstream is upstreamFor for an upstream that the group does not share.
func (g *group) ownUpstream(s *subscription, d *controlplane.Demand, key ownKey) (*upstream, *xdsclient.ResourceType, error) {
	u := g.own[key]
	if u == nil {
		node := g.node
		if !key.types {
			node = ownNode(d.Node)
		}
		var err error
		if u, err = g.relay.newOwnUpstream(g, node); err != nil {
			g.waiting[s] = struct{}{}
			s.free = func() { delete(g.waiting, s) }
			return nil, nil, err
		}
		g.own[key] = u
	}
	typ := u.typeOf(d.TypeURL)
	if typ == nil { // the client has subscribed to something else there, so that it stays
		return nil, nil, errTooManyTypes()
	}
	u.users++
	s.free = func() {
		if u.users--; u.users == 0 {
			delete(g.own, key)
			g.relay.closeUpstream(g, u)
		}
	}
	return u, typ, nil
}

// apart reports whether a demand is asked for under the client's own node, on a stream of its own.
// A client that is alone in its group has these anyway.
func (g *group) apart(d *controlplane.Demand) bool {
	return d.Stream != 0 && !g.relay.opts.FoldBy.private()
}
