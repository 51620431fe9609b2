package xdsclient

import "github.com/dynxds/dynxds/xdsclient/dynparam"

// scope is which subscriptions to a name a server means.
type scope struct {
	// all says that it means all of them; else constraints are those of the
	// subscription. For the member of a collection they are the collection's, which
	// stands for all variants of the member, or spell out the parameters of one, and
	// then variant is their key.
	all         bool
	constraints dynparam.Constraints
	variant     string
	exact       bool
	parameters  dynparam.Parameters
}

// scopeOf returns which subscriptions a server means. A server that goes by names
// means all.
func (u *update) scopeOf(n wireName) (scope, error) {
	if n.err != nil {
		return scope{}, n.err
	}
	if !n.scoped || !u.types.locators {
		return scope{all: true}, nil
	}
	c, err := dynparam.Unmarshal(n.constraints)
	if err != nil {
		return scope{}, err
	}
	sc := scope{constraints: c}
	if sc.parameters, sc.exact = c.Parameters(); sc.exact {
		sc.variant = sc.parameters.Key()
	}
	return sc, nil
}

// covers reports whether the server means a subscription to a resource or a
// collection.
func (sc *scope) covers(s *subscription) bool {
	return sc.all || s.resource.key.variant == sc.constraints.Key()
}

// coversMember reports whether the server means a member of a collection.
func (sc *scope) coversMember(m *subscription) bool {
	return sc.all || sc.exact && m.resource.key.variant == sc.variant || m.resource.collection.key.variant == sc.constraints.Key()
}
