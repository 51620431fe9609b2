package relay

import (
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/xdsclient"
)

// collection has the members of a collection that is subscribed to upstream. It implements
// xdsclient.CollectionWatcher. Guarded by group.mu.
type collection struct {
	sub *subscription
	// members are the members that upstream has.
	members map[memberKey]struct{}
	// complete is set when upstream has answered for the collection as a whole.
	complete bool
}

func newCollection(s *subscription) *collection {
	return &collection{sub: s, members: make(map[memberKey]struct{})}
}

// memberKey identifies a resource in the store of a group.
type memberKey struct{ typeURL, name, parameters string }

// member is a resource in the store, which may be in several collections.
type member struct {
	xdsclient.Member
	raw *resource
	// denial is the error in place of the resource, or nil.
	denial *status.Status
	// users counts the collections.
	users int
	dirty bool
	// renewed is set if upstream has extended the TTL, and changed nothing else.
	renewed bool
	expiry  expiry
}

// members are the resources in the store of a group, and the resources that are to be removed from it.
type members map[memberKey]*member

// MemberChanged implements xdsclient.CollectionWatcher.
func (c *collection) MemberChanged(m xdsclient.Member, value any, err error, done func()) {
	c.sub.noted(done, func() {
		raw, _ := value.(*resource)
		c.change(m, raw, asError(err))
	})
}

// AmbientError implements xdsclient.CollectionWatcher. An error for a member in use replaces it, as
// it would at the control plane: clients decide themselves what becomes of it (gRFC A88).
func (c *collection) AmbientError(m xdsclient.Member, err error, done func()) {
	c.sub.noted(done, func() {
		e := asError(err)
		if m.Name == "" {
			c.sub.err = e
		} else if _, sent := e.Status(); sent || e.Kind == xdsclient.KindDoesNotExist {
			c.change(m, nil, e)
		}
		c.sub.group.noteReach(c.sub, e)
	})
}

// CollectionChanged implements xdsclient.CollectionWatcher.
func (c *collection) CollectionChanged(err error, done func()) {
	c.sub.noted(done, func() {
		c.sub.err = asError(err)
		c.complete = err == nil
		if err != nil { // earlier reports of members are void
			c.disband()
		}
		c.sub.group.noteReach(c.sub, c.sub.err)
	})
}

// change notes the state of a member: raw, or err.
func (c *collection) change(m xdsclient.Member, raw *resource, err *xdsclient.Error) {
	key := memberKey{c.sub.key.typeURL, xdsname.Canonical(m.Name), m.Parameters.Key()}
	var denial *status.Status
	if raw == nil && err != nil {
		if st, sent := err.Status(); sent && err.Kind != xdsclient.KindDoesNotExist {
			denial = st
		}
	}
	if raw != nil && raw.DoNotCache {
		raw, denial = nil, errNotShared(m.Name)
	}
	all := c.sub.group.members
	if raw == nil && denial == nil {
		c.remove(key)
		return
	}
	e := all[key]
	if e == nil {
		e = &member{Member: m}
		all[key] = e
	}
	if _, in := c.members[key]; !in {
		c.members[key] = struct{}{}
		e.users++
	}
	e.renewed = e.denial == nil && !e.expiry.expired && raw.repeats(e.raw) && raw.TTL > 0
	e.raw, e.denial, e.dirty = raw, denial, true
	c.sub.group.stale = true
	e.expiry.restart(c.sub.group, raw, func() { e.dirty, c.sub.group.stale = true, true })
}

// remove removes a member. It stays in the store while another collection has it.
func (c *collection) remove(key memberKey) {
	if _, in := c.members[key]; !in {
		return
	}
	delete(c.members, key)
	g := c.sub.group
	e := g.members[key]
	if e.users--; e.users == 0 {
		e.expiry.stop()
	}
	e.dirty, g.stale = e.dirty || e.users == 0, true
}

// disband removes all members. A nil collection has none.
func (c *collection) disband() {
	if c == nil {
		return
	}
	for key := range c.members {
		c.remove(key)
	}
}

// flush returns the changes of the store that make it have the members. The caller holds g.mu.
func (ms members) flush() (changes []func(*controlplane.Tx)) {
	for key, e := range ms {
		if !e.dirty {
			continue
		}
		e.dirty = false
		if e.users == 0 {
			delete(ms, key)
			changes = append(changes, func(tx *controlplane.Tx) { tx.DeleteVariant(key.typeURL, e.Name, e.Parameters.Map()) })
			continue
		}
		if e.expiry.expired {
			changes = append(changes, func(tx *controlplane.Tx) { tx.DeleteVariant(key.typeURL, e.Name, e.Parameters.Map()) })
			continue
		}
		changes = append(changes, memberChange(key.typeURL, e.Member, e.raw, e.denial))
		if e.renewed {
			changes = append(changes, func(tx *controlplane.Tx) { tx.Renew(key.typeURL, e.Name, e.Parameters.Map()) })
			e.renewed = false
		}
	}
	return changes
}

// memberChange sets a member in the store.
func memberChange(typeURL string, m xdsclient.Member, raw *resource, denial *status.Status) func(*controlplane.Tx) {
	return func(tx *controlplane.Tx) {
		if denial != nil {
			tx.SetVariantError(typeURL, m.Name, m.Parameters.Map(), denial)
			return
		}
		if r, err := controlplane.NewResource(raw.as(m.Name)); err == nil {
			tx.SetResource(r)
		}
	}
}
