package relay

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/xdsclient"
)

// collection is the subscription to a collection as its xdsclient.CollectionWatcher.
type collection struct{ *subscription }

// memberKey identifies a resource in the store of a group.
type memberKey struct{ typeURL, name, parameters string }

// member is a resource in the store, which may be in several collections, or one that is to be removed from it. Guarded by group.mu.
type member struct {
	xdsclient.Member
	group *group
	key   memberKey
	held
	// denial is the error in place of the resource, or nil.
	denial *status.Status
	// users counts the collections.
	users int
}

// MemberChanged implements xdsclient.CollectionWatcher.
func (c collection) MemberChanged(m xdsclient.Member, value any, err error, done func()) {
	c.noted(err, done, func(e *xdsclient.Error) {
		raw, _ := value.(*resource)
		c.changeMember(m, raw, e)
	})
}

// AmbientError implements xdsclient.CollectionWatcher. An error for a member in use replaces it, as
// it would at the control plane: clients decide themselves what becomes of it (gRFC A88).
func (c collection) AmbientError(m xdsclient.Member, err error, done func()) {
	c.noted(err, done, func(e *xdsclient.Error) {
		if m.Name == "" {
			c.err = e
		} else if _, sent := e.Status(); sent || e.Kind == xdsclient.KindDoesNotExist {
			c.changeMember(m, nil, e)
		}
		c.noteReach(e)
	})
}

// CollectionChanged implements xdsclient.CollectionWatcher.
func (c collection) CollectionChanged(err error, done func()) {
	c.noted(err, done, func(e *xdsclient.Error) {
		c.err, c.complete = e, e == nil
		if e != nil { // earlier reports of members are void
			c.disband()
		}
		c.noteReach(e)
	})
}

// changeMember notes the state of a member: raw, or err.
func (s *subscription) changeMember(of xdsclient.Member, raw *resource, err *xdsclient.Error) {
	g := s.group
	key := memberKey{s.key.typeURL, xdsname.Canonical(of.Name), of.Parameters.Key()}
	var denial *status.Status
	if raw == nil && err != nil {
		if st, sent := err.Status(); sent && err.Kind != xdsclient.KindDoesNotExist {
			denial = st
		}
	}
	if raw != nil && raw.DoNotCache { // the collection is asked for under the node of the relay, and the resource is that node's
		raw, denial = nil, status.Newf(codes.FailedPrecondition,
			"%q must not be cached, so the xDS relay cannot pass it on as a member of a collection: subscribe to it by its name", of.Name)
	}
	if raw == nil && denial == nil {
		s.removeMember(key)
		return
	}
	m := g.members[key]
	if m == nil {
		m = &member{Member: of, group: g, key: key}
		g.members[key] = m
	}
	if _, in := s.members[key]; !in {
		s.members[key] = struct{}{}
		m.users++
	}
	m.hold(g, m, raw, m.denial != nil)
	m.denial = denial
}

// removeMember removes a member. It stays in the store while another collection has it.
func (s *subscription) removeMember(key memberKey) {
	if _, in := s.members[key]; !in {
		return
	}
	delete(s.members, key)
	m := s.group.members[key]
	if m.users--; m.users == 0 {
		stopTimer(&m.ttl)
		s.group.changed(m, false)
	}
}

// disband removes all members of a collection.
func (s *subscription) disband() {
	for key := range s.members {
		s.removeMember(key)
	}
}

// change implements answer.
func (m *member) change(tx *controlplane.Tx, renewed bool) {
	parameters := m.Parameters.Map()
	if m.users == 0 && m.group.members[m.key] == m {
		delete(m.group.members, m.key)
	}
	switch {
	case m.users == 0, m.expired:
		tx.DeleteVariant(m.key.typeURL, m.Name, parameters)
	case m.denial != nil:
		tx.SetVariantError(m.key.typeURL, m.Name, parameters, m.denial)
	default:
		if r, err := controlplane.NewResource(m.raw.as(m.Name)); err == nil {
			tx.SetResource(r)
		}
		if renewed {
			tx.Renew(m.key.typeURL, m.Name, parameters)
		}
	}
}
