package relay

import (
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/xdsclient"
)

// upstream is a client of the management servers, which has one stream to each of them that it needs.
type upstream struct {
	client *xdsclient.XDSClient
	// types are the types of resources that the stream was used for.
	types map[string]*upstreamType
	// invented counts the types that are not types of xDS.
	invented int
	// users counts the subscriptions, but for the upstream that a group shares.
	users int
}

// upstreamType is a type of resources, with the number of subscriptions.
type upstreamType struct {
	*xdsclient.ResourceType
	invented bool
	users    int
}

// typeOf returns a type of resources, or nil if there are too many that clients have invented: a stream has
// each type until it ends.
func (u *upstream) typeOf(typeURL string) *upstreamType {
	if t := u.types[typeURL]; t != nil {
		return t
	}
	known, _ := xdsname.CheckType(typeurl.Name(typeURL))
	t := &upstreamType{ResourceType: newType(typeURL), invented: !known || typeURL != typeurl.Prefix+typeurl.Name(typeURL)}
	if t.invented {
		if u.invented == maxTypes {
			return nil
		}
		u.invented++
	}
	u.types[typeURL] = t
	return t
}

// hasSpentTypes reports whether nobody subscribes any more to some of the types that clients have invented.
func (u *upstream) hasSpentTypes() bool {
	for _, t := range u.types {
		if t.invented && t.users == 0 {
			return true
		}
	}
	return false
}

// ownKey identifies an upstream that a group does not share.
type ownKey struct {
	// stream is that of the client, or 0 if the clients of the group share it. The upstream ends when nothing is left
	// that the client was the first to subscribe to.
	stream uint64
	// types is set if the upstream is for types that the client invented, under the node of the group;
	// otherwise it is for resources that must not be cached, under the client's node.
	types bool
}

// moreTypes is an upstream that the clients of a group share as well, once the types of the first one are spent: those
// that clients had invented before they left.
var moreTypes = ownKey{types: true}

// upstreamFor returns the upstream and the type for a demand, and what gives back what the demand uses of
// them. The error is RESOURCE_EXHAUSTED. The caller holds g.mu.
func (g *group) upstreamFor(s *subscription, d *controlplane.Demand) (*upstream, *xdsclient.ResourceType, error) {
	if d.Stream != 0 { // under the client's own node
		return g.ownUpstream(s, d, ownKey{stream: d.Stream})
	}
	typ := g.shared.typeOf(d.TypeURL)
	if typ == nil {
		return g.ownUpstream(s, d, g.typesKey(d))
	}
	if err := g.charge(s, d.First); err != nil {
		return nil, nil, err
	}
	s.use(typ)
	return g.shared, typ.ResourceType, nil
}

// use counts a subscription to a type until it is free.
func (s *subscription) use(typ *upstreamType) {
	typ.users++
	free := s.free
	s.free = func() { typ.users--; free() }
}

// typesKey identifies the upstream for a type for which the first one has no room.
func (g *group) typesKey(d *controlplane.Demand) ownKey {
	u := g.own[moreTypes]
	if g.shared.hasSpentTypes() && (u == nil || u.typeOf(d.TypeURL) != nil) {
		return moreTypes
	}
	return ownKey{stream: d.First, types: true}
}

// ownUpstream is upstreamFor for an upstream beside the first one of the group.
func (g *group) ownUpstream(s *subscription, d *controlplane.Demand, key ownKey) (*upstream, *xdsclient.ResourceType, error) {
	if key == moreTypes { // a stream with the limit of the first one
		if err := g.charge(s, d.First); err != nil {
			return nil, nil, err
		}
	}
	u := g.own[key]
	if u == nil {
		node := g.node
		if !key.types {
			node = ownNode(d.Node)
		}
		var err error
		if u, err = g.relay.newOwnUpstream(g, node); err != nil {
			s.free()
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
	s.use(typ)
	u.users++
	free := s.free
	s.free = func() {
		free()
		if u.users--; u.users == 0 {
			delete(g.own, key)
			g.relay.closeUpstream(g.by, u)
		}
	}
	return u, typ.ResourceType, nil
}
