package xdsclient

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
	"github.com/dynxds/dynxds/xdsclient/internal/ads"
)

// wildcard is the collection of all resources of a type with old-style names (Envoy, xDS protocol, "How
// the client specifies what resources to return").
const wildcard = "*"

// isCollection reports whether a name in canonical form is that of a glob collection, or the wildcard.
func isCollection(name string) bool { return name == wildcard || xdsname.IsCollection(name) }

// newMember makes the cache entry of a member of the collection, which is not in the cache yet.
func (r *resource) newMember(key resourceKey, parameters dynparam.Parameters) *resource {
	return &resource{key: key, authority: r.authority, parameters: parameters, memberOf: r}
}

// addMember adds a member that the server has sent.
func (s *subscription) addMember(member Member) *subscription {
	key := resourceKey{s.resource.key.typ, member.Name, member.Parameters.Key()}
	r := s.resource.members[key]
	if r == nil {
		r = s.resource.newMember(key, member.Parameters)
	}
	m := &subscription{resource: r, types: s.types}
	s.members.add(m)
	return m
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
func (s *subscription) cullMembers(d *delivery) {
	r, ch := s.resource, s.types.channel
	if !s.isCollection() || !ch.serves(r) || s.payload == nil || s.State.Pending() || len(r.members) == s.members.size {
		return
	}
	for key, m := range r.members {
		if s.members.get(key) == nil {
			r.expel(m, ch.fault(KindDoesNotExist, m, errLeft), d)
		}
	}
}

var errLeft = errors.New("does not exist: it is no longer in its collection")

// collectionsOf returns the first of the subscriptions to the collection that has resources
// of this name, or nil, and the name in canonical form.
func (ts *typeState) collectionsOf(name []byte) (first *subscription, canonical string) {
	if ts.collections == 0 || !ts.channel.dialect.Incremental {
		return nil, ""
	}
	if !bytes.HasPrefix(name, []byte(xdsname.Prefix)) {
		first = ts.subs.first[wildcard]
		if first == nil || string(name) == wildcard {
			return nil, ""
		}
		return first, string(name)
	}
	canonical = xdsname.Canonical(string(name))
	if isCollection(canonical) {
		return nil, ""
	}
	return ts.subs.first[xdsname.CollectionOf(canonical)], canonical
}

// collectionOf returns the name of the collection that has resources of a name as a server writes it.
func collectionOf(name []byte) string {
	if !bytes.HasPrefix(name, []byte(xdsname.Prefix)) {
		return wildcard
	}
	return xdsname.CollectionOf(xdsname.Canonical(string(name)))
}

// enter adds a member that nothing is known of yet. The server decides how many there
// are, so there is a limit.
func (s *subscription) enter(member Member) (*subscription, error) {
	if limit := s.resource.client().maxMembers; s.members.size >= limit {
		return nil, fmt.Errorf("the collection has more than %d members", limit)
	}
	m := s.addMember(member)
	m.step(ads.Sent)
	return m, nil
}
