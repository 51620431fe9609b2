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

// collection is a glob collection (xRFC TP1, "Glob") in the cache of one server: which
// members it has in the cache, and which of them the server has sent. A member that is cached
// and was not sent comes from an earlier stream or another server. It leaves when the
// server has answered for the collection without it.
type collection struct {
	// entry is that of the collection as a whole, and sub the subscription to it.
	entry *resource
	sub   *subscription
	// cached are the entries of the members.
	cached map[resourceKey]*resource
	// sent has a subscription for each member that the server has sent or has an error for, variants
	// finds those with parameters, of which a name may have many, and size is how many members there
	// are. These subscriptions are in no request.
	sent     subscriptions
	variants map[resourceKey]*subscription
	size     int
}

func newCollection(entry *resource) *collection {
	return &collection{
		entry:    entry,
		cached:   make(map[resourceKey]*resource),
		sent:     make(subscriptions),
		variants: make(map[resourceKey]*subscription),
	}
}

// wildcard is the collection of all resources of a type with old-style names (Envoy, xDS protocol, "How
// the client specifies what resources to return").
const wildcard = "*"

// isCollection reports whether a name in canonical form is that of a glob collection, or the wildcard.
func isCollection(name string) bool { return name == wildcard || xdsname.IsCollection(name) }

// members returns the members that the server has sent. A nil collection has none.
func (c *collection) members() subscriptions {
	if c == nil {
		return nil
	}
	return c.sent
}

// entries returns the members in the cache. A nil collection has none.
func (c *collection) entries() map[resourceKey]*resource {
	if c == nil {
		return nil
	}
	return c.cached
}

// newEntry makes the cache entry of a member, which is not in the cache yet.
func (c *collection) newEntry(key resourceKey, parameters dynparam.Parameters) *resource {
	return &resource{key: key, level: c.entry.level, parameters: parameters, memberOf: c, state: StateRequested}
}

// addMember adds a member that the server has sent.
func (c *collection) addMember(name string, parameters dynparam.Parameters) *subscription {
	key := resourceKey{c.entry.key.typ, name, parameters.Key()}
	r := c.cached[key]
	if r == nil {
		r = c.newEntry(key, parameters)
	}
	m := &subscription{resource: r}
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
	c := m.resource.memberOf
	if c == nil {
		return
	}
	if r := c.cached[m.resource.key]; r != nil { // inherited from another level
		m.resource = r
		return
	}
	c.cached[m.resource.key] = m.resource
}

// forget removes a member from the cache.
func (c *collection) forget(m *resource) {
	delete(c.cached, m.key)
	m.client().ignored.remove(m)
}

// expel removes a member from the cache, and reports to the watchers that it is no longer to
// be used.
func (c *collection) expel(m *resource, state CacheState, fault *Error, d *delivery) {
	m.fail(lastError{state, fault, true}, d)
	c.forget(m)
}

// disband expels all members because of an error for the collection.
func (c *collection) disband(e lastError, d *delivery) {
	for _, m := range c.entries() {
		c.expel(m, e.state, e.fault.about(m), d)
	}
}

// cullMembers expels the members that the server, having answered for the collection, has not sent. While other parts
// of the answer may come, or until the resource timer fires, they stay.
func (c *collection) cullMembers(ch *managementServer, d *delivery) {
	if c == nil || c.sub.payload == nil || c.sub.State.Pending() || len(c.cached) == c.size {
		return
	}
	for key, m := range c.cached {
		if c.sentMember(key) == nil {
			c.expel(m, StateDoesNotExist, ch.fault(KindDoesNotExist, m, errLeft), d)
		}
	}
}

// inherit takes over members from another level, as far as the server has not sent them.
func (c *collection) inherit(from *collection) {
	for key, m := range from.entries() {
		mine := c.cached[key]
		if mine == nil {
			mine = c.newEntry(key, m.parameters)
			c.cached[key] = mine
		}
		mine.inheritLastAnswer(c.sentMember(key), m)
	}
}

// keepOnly removes from the cache the members that neither the server nor another level has.
func (c *collection) keepOnly(other *collection) {
	for key, m := range c.entries() {
		if other.entries()[key] == nil && c.sentMember(key) == nil {
			c.forget(m)
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

// known returns the version with these very bytes that a cache of the authority has of the
// member from another stream or server, or nil.
func (n *newcomer) known(it *item, server *bootstrap.Server) *payload {
	c := n.collection
	key := resourceKey{c.entry.key.typ, n.member.Name, n.member.Parameters.Key()}
	if m := c.cached[key]; m != nil {
		return m.known(it, server)
	}
	return c.newEntry(key, n.member.Parameters).known(it, server)
}

// enter adds a member that nothing is known of yet. The server decides how many there
// are, so there is a limit.
func (n *newcomer) enter() (*subscription, error) {
	if limit := n.collection.entry.client().options.maxMembers; n.collection.size >= limit {
		return nil, fmt.Errorf("the collection has more than %d members", limit)
	}
	m := n.collection.addMember(n.member.Name, n.member.Parameters)
	m.Step(ads.Sent)
	return m, nil
}
