package xdsclient

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
	"github.com/dynxds/dynxds/xdsclient/internal/ads"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
)

// CollectionWatcher hears of a glob collection (xRFC TP1, "Glob"): all resources
// of one type that share a directory and their context parameters. The calls to
// one watcher are serial, and done is that of Watcher.
type CollectionWatcher interface {
	// MemberChanged says what the member is now: value as the ResourceType
	// decoded it, or, if err is not nil, that there is none to use and why. It
	// replaces whatever was said of the member before. A member that left the
	// collection has an *Error of KindDoesNotExist; it may come back.
	MemberChanged(m Member, value any, err error, done func())
	// CollectionChanged says how it stands with the collection as a whole. A
	// nil err says that the server has answered: the members it had then have
	// been told, and there may be none. Errors for members are an answer too
	// (xRFC TP3, "Wildcard Subscriptions and Glob Collections"). Otherwise err is an *Error and says why
	// nothing is known of the collection; what was said of members is void.
	CollectionChanged(err error, done func())
	// AmbientError reports a fault that leaves what was said in use: of the
	// member, or, if it is the zero Member, of the collection as a whole. err is
	// an *Error.
	AmbientError(m Member, err error, done func())
}

// Member is what a collection has: a resource, or, of one that has variants (xRFC
// TP2), a variant of it. "All matching variants of the resource will be used", so
// those of one name are members side by side.
type Member struct {
	Name string
	// Parameters tell the variant. Compare them with Equal.
	Parameters dynparam.Parameters
}

// WatchCollection implements Client. Members come and go as the server says,
// whatever the server's features: what a collection has is its content, and that
// a member left is no data error in the sense of gRFC A88. An error for the
// collection as a whole is: it withdraws the members if the server has
// fail_on_data_errors.
//
// Only delta has collections. With a server
// that does not speak it, the watcher gets an *Error of KindConfiguration.
func (c *XDSClient) WatchCollection(t *ResourceType, name string, watcher CollectionWatcher) (stop func()) {
	return c.watch(t, wire.Locator{Name: name}, newCollectionWatch(watcher), "")
}

func newCollectionWatch(to CollectionWatcher) *watch {
	return &watch{
		watcher: wholeWatcher{to},
		members: &membersNews{watcher: func(m Member) Watcher { return memberWatcher{to, m} }},
	}
}

// wholeWatcher tells a CollectionWatcher of the collection as a whole.
type wholeWatcher struct{ to CollectionWatcher }

func (w wholeWatcher) ResourceChanged(_ any, err error, done func()) {
	w.to.CollectionChanged(err, done)
}
func (w wholeWatcher) AmbientError(err error, done func()) { w.to.AmbientError(Member{}, err, done) }

// memberWatcher tells a CollectionWatcher of one member.
type memberWatcher struct {
	to     CollectionWatcher
	member Member
}

func (w memberWatcher) ResourceChanged(value any, err error, done func()) {
	w.to.MemberChanged(w.member, value, err, done)
}
func (w memberWatcher) AmbientError(err error, done func()) { w.to.AmbientError(w.member, err, done) }

// isCollection reports whether a name in canonical form is that of a glob
// collection: of the resources of a directory, and not of one of them.
func isCollection(name string) bool { return xdsname.IsCollection(name) }

// collectionsOf returns the first of the subscriptions to the collection that has
// resources of this name, or nil, and the name in canonical form.
func (ts *typeState) collectionsOf(name []byte) (first *subscription, canonical string) {
	if ts.collections == 0 || !ts.Dialect.Incremental() || !bytes.HasPrefix(name, []byte(newStylePrefix)) {
		return nil, ""
	}
	canonical = xdsname.Canonical(string(name))
	if isCollection(canonical) {
		return nil, ""
	}
	return ts.subs[xdsname.CollectionOf(canonical)], canonical
}

// newcomer is a member that a collection does not have yet.
type newcomer struct {
	collection *subscription
	member     Member
}

// known returns the version with these very bytes that a cache of the authority has of the
// member from another stream or server, or nil.
func (n *newcomer) known(raw []byte, server *bootstrap.Server) *payload {
	c := n.collection.resource
	m := resource{key: resourceKey{c.key.typ, n.member.Name, n.member.Parameters.Key()}, level: c.level, collection: c}
	if r := c.members[m.key]; r != nil {
		return r.known(raw, server)
	}
	return m.known(raw, server)
}

// enter makes a member of a collection, of which nothing is known yet. How many
// there are is up to the server, so there is a limit.
func (u *update) enter(n newcomer) (*subscription, error) {
	if limit := u.ch.client.options.maxMembers; n.collection.membership >= limit {
		return nil, fmt.Errorf("the collection has more than %d members", limit)
	}
	m := n.collection.newMember(n.member.Name, n.member.Parameters)
	m.State = ads.Received
	return m, nil
}

// newMember adds a member to a collection.
func (s *subscription) newMember(name string, parameters dynparam.Parameters) *subscription {
	c := s.resource
	key := resourceKey{c.key.typ, name, parameters.Key()}
	r := c.members[key]
	if r == nil {
		r = &resource{key: key, level: c.level, parameters: parameters, collection: c}
	}
	m := &subscription{resource: r}
	s.members.add(m)
	s.membership++
	return m
}

// admit has the cache know a member of a collection, now that the server has said
// something of it.
func (s *subscription) admit() {
	c := s.resource.collection
	if c == nil {
		return
	}
	if r := c.members[s.resource.key]; r != nil { // inherited from another level
		s.resource = r
		return
	}
	c.members[s.resource.key] = s.resource
}

// exit notes that the server has a member no more.
func (u *update) exit(m *subscription, state resourceState, fault *Error) {
	c := m.resource.collection
	u.types.dropMember(u.types.subs.get(c.key), m)
	c.lift(u.delivery)
	c.expel(m.resource.key, state, fault, u.delivery)
}

// expel tells the watchers that a member is no longer to be used, and forgets it.
func (r *resource) expel(key resourceKey, state resourceState, fault *Error, d *delivery) {
	if m := r.members[key]; m != nil {
		m.fail(state, fault, true, d)
		delete(r.members, key)
		r.client().ignored.remove(m)
	}
}

// disband does with all members what expel does with one.
func (r *resource) disband(b lastError, d *delivery) {
	for key, m := range r.members {
		r.expel(key, b.state, b.fault.about(m), d)
	}
}

// answer notes that the server answered for a collection.
func (u *update) answer(s *subscription) {
	if s.Seen == u.number {
		return
	}
	s.Seen, s.State = u.number, ads.Received
	u.collections = append(u.collections, s)
	whole := s.payload
	if whole == nil {
		whole = &payload{server: u.ch.server}
	}
	u.ch.accept(s, whole, u.stamp, u.delivery)
}

// empty notes that a collection has no members.
func (u *update) empty(s *subscription) {
	for m := range s.members.all() {
		u.exit(m, resourceMissing, u.fault(KindDoesNotExist, m.resource, errLeft))
	}
	u.answer(s)
	u.lift(s.resource)
}

// cull has the members of a collection leave that the cache has from another stream or
// server and that this one, having answered for the collection, does not have.
func (ch *serverChannel) cull(s *subscription, d *delivery) {
	c := s.resource
	if s.payload == nil || len(c.members) == s.membership {
		return
	}
	for key, m := range c.members {
		if s.members.get(key) == nil {
			c.expel(key, resourceMissing, ch.fault(KindDoesNotExist, m, errLeft), d)
		}
	}
}

var errLeft = errors.New("does not exist: it is no longer in its collection")
