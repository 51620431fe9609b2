package xdsclient

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
	"github.com/dynxds/dynxds/xdsclient/internal/ads"
)

// collection is what one server has sent of a glob collection (xRFC TP1, "Glob").
type collection struct {
	// sub is the subscription to the collection as a whole.
	sub *subscription
	// sent has a subscription for each member that the server has sent or has an error for, variants
	// finds those with parameters, of which a name may have many, and size is how many members there
	// are. These subscriptions are in no request.
	sent     subscriptions
	variants map[resourceKey]*subscription
	size     int
}

func newCollection(sub *subscription) *collection {
	return &collection{sub: sub, sent: make(subscriptions), variants: make(map[resourceKey]*subscription)}
}

// wildcard is the collection of all resources of a type with old-style names (Envoy, xDS protocol, "How
// the client specifies what resources to return").
const wildcard = "*"

// isCollection reports whether a name in canonical form is that of a glob collection, or the wildcard.
func isCollection(name string) bool { return name == wildcard || xdsname.IsCollection(name) }

// entry is the cache entry of the collection as a whole.
func (c *collection) entry() *resource { return c.sub.resource }

// members returns the members that the server has sent. What is not a collection has none.
func (s *subscription) members() subscriptions {
	if !s.IsCollection() {
		return nil
	}
	return s.collection.sent
}

// newMember makes the cache entry of a member of the collection, which is not in the cache yet.
func (r *resource) newMember(key resourceKey, parameters dynparam.Parameters) *resource {
	return &resource{key: key, authority: r.authority, parameters: parameters, memberOf: r}
}

// addMember adds a member that the server has sent.
func (c *collection) addMember(name string, parameters dynparam.Parameters) *subscription {
	key := resourceKey{c.entry().key.typ, name, parameters.Key()}
	r := c.entry().members[key]
	if r == nil {
		r = c.entry().newMember(key, parameters)
	}
	m := &subscription{resource: r, collection: c}
	c.sent.add(m)
	if key.variant != "" {
		c.variants[key] = m
	}
	c.size++
	return m
}

// sentMember returns the subscription of a member that the server has sent, or nil.
func (c *collection) sentMember(key resourceKey) *subscription {
	if key.variant != "" {
		return c.variants[key]
	}
	if first := c.sent[key.name]; first != nil && first.resource.key.variant == "" {
		return first
	}
	return nil
}

// removeMember removes a member that the server has sent.
func (c *collection) removeMember(m *subscription) {
	c.sent.remove(m)
	delete(c.variants, m.resource.key)
	c.size--
}

// admit adds a member of a collection to the cache after the server's first answer for it.
func (m *subscription) admit() {
	whole := m.resource.memberOf
	if whole == nil {
		return
	}
	if r := whole.members[m.resource.key]; r != nil { // of another server
		m.resource = r
		return
	}
	whole.members[m.resource.key] = m.resource
}

// expel removes a member from the cache, and reports to the watchers that it is no longer to
// be used.
func (r *resource) expel(m *resource, fault *Error, d *delivery) {
	fault.withdraws = true
	m.fail(fault, d)
	delete(r.members, m.key)
}

// disband expels all members because of an error for the collection.
func (r *resource) disband(err *Error, d *delivery) {
	for _, m := range r.members {
		r.expel(m, err.about(m), d)
	}
}

// cullMembers expels the members that the server, having answered for the collection, has not sent. While other parts
// of the answer may come, or until the resource timer fires, they stay.
func (ch *managementServer) cullMembers(s *subscription, d *delivery) {
	r := s.resource
	if !s.IsCollection() || !ch.serves(r) || s.payload == nil || s.State.Pending() || len(r.members) == s.collection.size {
		return
	}
	for key, m := range r.members {
		if s.collection.sentMember(key) == nil {
			r.expel(m, ch.fault(KindDoesNotExist, m, errLeft), d)
		}
	}
}

var errLeft = errors.New("does not exist: it is no longer in its collection")

// collectionsOf returns the first of the subscriptions to the collection that has resources
// of this name, or nil, and the name in canonical form.
func (ts *typeState) collectionsOf(name []byte) (first *subscription, canonical string) {
	if ts.collections == 0 || !ts.Dialect.Incremental() {
		return nil, ""
	}
	if !bytes.HasPrefix(name, []byte(newStylePrefix)) {
		first = ts.subs[wildcard]
		if first == nil || string(name) == wildcard {
			return nil, ""
		}
		return first, string(name)
	}
	canonical = xdsname.Canonical(string(name))
	if isCollection(canonical) {
		return nil, ""
	}
	return ts.subs[xdsname.CollectionOf(canonical)], canonical
}

// collectionOf returns the name of the collection that has resources of a name as a server writes it.
func collectionOf(name []byte) string {
	if !bytes.HasPrefix(name, []byte(newStylePrefix)) {
		return wildcard
	}
	return xdsname.CollectionOf(xdsname.Canonical(string(name)))
}

// newcomer is a member that the server has sent and that is not in the collection yet.
type newcomer struct {
	collection *collection
	member     Member
}

// known returns the version with these very bytes that the cache has of the
// member from another stream or server, or nil.
func (n *newcomer) known(it *item, server *bootstrap.Server) *payload {
	whole := n.collection.entry()
	m := whole.members[resourceKey{whole.key.typ, n.member.Name, n.member.Parameters.Key()}]
	if m == nil || !m.payload.of(it, server) {
		return nil
	}
	return m.payload
}

// enter adds a member that nothing is known of yet. The server decides how many there
// are, so there is a limit.
func (n *newcomer) enter() (*subscription, error) {
	if limit := n.collection.entry().client().options.maxMembers; n.collection.size >= limit {
		return nil, fmt.Errorf("the collection has more than %d members", limit)
	}
	m := n.collection.addMember(n.member.Name, n.member.Parameters)
	m.Step(ads.Sent)
	return m, nil
}
