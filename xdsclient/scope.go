package xdsclient

import (
	"github.com/dynxds/dynxds/internal/dynwire"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
)

// scope is which subscriptions to a name a server means.
type scope struct {
	// all says that it means all of them; else constraints are those of the
	// subscription.
	all         bool
	constraints dynparam.Constraints
	// exact says that the constraints spell out parameters. Of the member of a
	// collection they are those of the variant that is meant. Constraints that spell
	// out none are the collection's, and mean all variants of the member.
	exact      bool
	parameters dynparam.Parameters
}

// scopeOf returns which subscriptions a server means. A server that goes by names
// means all.
func (u *update) scopeOf(n wire.ResourceName) (scope, error) {
	if n.Err != nil {
		return scope{}, n.Err
	}
	if !n.Scoped || !u.types.Dialect.Locators() {
		return scope{all: true}, nil
	}
	if isPublishedConstraints(n.Constraints) {
		return scope{}, errPublished
	}
	c, err := dynwire.UnmarshalConstraints(n.Constraints)
	if err != nil {
		return scope{}, err
	}
	sc := scope{constraints: c}
	sc.parameters, sc.exact = c.Parameters()
	return sc, nil
}

// covers reports whether the server means a subscription to a resource or a
// collection.
func (sc *scope) covers(s *subscription) bool {
	return sc.all || s.resource.key.variant == sc.constraints.Key()
}

// coversMember reports whether the server means a member of a collection.
func (sc *scope) coversMember(m *subscription) bool {
	switch {
	case sc.all:
		return true
	case sc.exact:
		return m.resource.key.variant == sc.parameters.Key()
	default:
		return m.resource.collection.entry.key.variant == sc.constraints.Key()
	}
}
