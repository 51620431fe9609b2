package xdsclient

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// CollectionWatcher hears of a glob collection (xRFC TP1, "Glob"): all resources
// of one type that share a directory and their context parameters. The calls to
// one watcher are serial, and done is that of Watcher.
type CollectionWatcher interface {
	// MemberChanged says what the member of that name is now: value as the
	// ResourceType decoded it, or, if err is not nil, that there is none to use
	// and why. It replaces whatever was said of the member before. A member
	// that left the collection has an *Error of KindDoesNotExist; it may come
	// back.
	MemberChanged(name string, value any, err error, done func())
	// CollectionChanged says how it stands with the collection as a whole. A
	// nil err says that the server has answered: the members it had then have
	// been told, and there may be none. Otherwise err is an *Error and says why
	// nothing is known of the collection; what was said of members is void.
	CollectionChanged(err error, done func())
	// AmbientError reports a fault that leaves what was said in use: of the
	// member of that name, or, if it is empty, of the collection as a whole.
	// err is an *Error.
	AmbientError(name string, err error, done func())
}

// WatchCollection implements Client. Members come and go as the server says,
// whatever the server's features: what a collection has is its content, and that
// a member left is no data error in the sense of gRFC A88. An error for the
// collection as a whole is: it withdraws the members if the server has
// fail_on_data_errors.
//
// Only the incremental variant of the protocol has collections. With a server
// that does not speak it, the watcher gets an *Error of KindConfiguration.
func (c *XDSClient) WatchCollection(t *ResourceType, name string, watcher CollectionWatcher) (stop func()) {
	w := &watch{
		watcher: wholeWatcher{watcher},
		members: &membersNews{watcher: func(name string) Watcher { return memberWatcher{watcher, name} }},
	}
	var err error
	if !isCollection(canonicalName(name)) {
		err = errors.New(`not the name of a collection, which starts with "xdstp:" and whose path ends in "/*"; use Watch`)
	}
	return c.watch(t, name, w, err)
}

// wholeWatcher tells a CollectionWatcher of the collection as a whole.
type wholeWatcher struct{ to CollectionWatcher }

func (w wholeWatcher) ResourceChanged(_ any, err error, done func()) {
	w.to.CollectionChanged(err, done)
}
func (w wholeWatcher) AmbientError(err error, done func()) { w.to.AmbientError("", err, done) }

// memberWatcher tells a CollectionWatcher of one member.
type memberWatcher struct {
	to   CollectionWatcher
	name string
}

func (w memberWatcher) ResourceChanged(value any, err error, done func()) {
	w.to.MemberChanged(w.name, value, err, done)
}
func (w memberWatcher) AmbientError(err error, done func()) { w.to.AmbientError(w.name, err, done) }

// canonicalName returns the form of a resource name in which equal names are
// equal.
func canonicalName(name string) string { return name }

// splitName splits a new-style name into its path and the rest.
func splitName(name string) (path, rest string) {
	if end := strings.IndexAny(name, "?#"); end >= 0 {
		return name[:end], name[end:]
	}
	return name, ""
}

// isCollection reports whether a name is that of a glob collection.
func isCollection(name string) bool {
	if !strings.HasPrefix(name, newStylePrefix) {
		return false
	}
	path, _ := splitName(name)
	return strings.HasSuffix(path, "/*")
}

// collectionOf returns the name of the collection that the resource of a new-style
// name is a member of: that of its directory with the same context parameters. A
// resource in a directory below is not a member.
func collectionOf(name string) string {
	path, rest := splitName(name)
	return path[:strings.LastIndexByte(path, '/')+1] + "*" + rest
}

// member returns the collection that is subscribed to and has resources of this
// name, or nil, and its member, or nil.
func (ts *typeState) member(name []byte) (collection, member *subscription) {
	if ts.collections == 0 || !bytes.HasPrefix(name, []byte(newStylePrefix)) {
		return nil, nil
	}
	canonical := canonicalName(string(name))
	s := ts.subs[collectionOf(canonical)]
	if s == nil || !ts.knows(s) || isCollection(canonical) {
		return nil, nil
	}
	return s, s.members[canonical]
}

// named returns the subscription to a resource or a collection by its name, or
// nil.
func (ts *typeState) named(name []byte) *subscription {
	s := ts.subs[string(name)] // does not copy
	if s == nil && bytes.HasPrefix(name, []byte(newStylePrefix)) {
		s = ts.subs[canonicalName(string(name))]
	}
	if s == nil || !ts.knows(s) {
		return nil
	}
	return s
}

// enter makes a member of a collection, of which nothing is known yet. It returns
// nil if there are too many: how many there are is up to the server.
func (u *update) enter(s *subscription, name []byte) *subscription {
	if limit := u.ch.client.options.maxMembers; len(s.members) >= limit {
		u.faults.add(fmt.Sprintf("%s %q", u.types.typ.Name, name), fmt.Errorf("the collection has more than %d members", limit))
		return nil
	}
	return s.enter(canonicalName(string(name)))
}

// enter makes a member of the collection.
func (s *subscription) enter(name string) *subscription {
	c := s.resource
	r := c.members[name]
	if r == nil {
		r = &resource{key: resourceKey{c.key.typ, name}, authority: c.authority, collection: c}
		c.members[name] = r
	}
	m := &subscription{resource: r, state: subscriptionReceived}
	s.members[name] = m
	return m
}

// exit tells the watchers that a member is no longer to be used, and forgets it.
func (s *subscription) exit(m *subscription, state resourceState, fault *Error, d *delivery) {
	m.resource.fail(state, fault, true, d)
	m.state = subscriptionDropped
	delete(s.members, m.resource.key.name)
	delete(s.resource.members, m.resource.key.name)
}

// whole is the payload of a collection that the server has answered for.
func (u *update) whole() *payload { return &payload{server: u.ch.server} }

// answer notes that the server answered for a collection.
func (u *update) answer(s *subscription) {
	s.state = subscriptionReceived
	if s.resource.payload == nil {
		s.resource.accept(u.whole(), u.resp.version, u.delivery)
		return
	}
	s.resource.confirm(u.resp.version, u.delivery)
}

// empty notes that a collection has no members.
func (u *update) empty(s *subscription) {
	for _, m := range s.members {
		s.exit(m, resourceMissing, u.ch.fault(KindDoesNotExist, m.resource, errLeft), u.delivery)
	}
	u.answer(s)
}

var errLeft = errors.New("does not exist: it is no longer in its collection")

// unserved tells the watchers of a collection that the server has none.
func (ch *serverChannel) unserved(s *subscription) {
	reason := errors.New(`collections need the incremental protocol, and server_features of the server does not have "delta"`)
	if ch.server.HasFeature("delta") {
		reason = errors.New("collections need the incremental protocol, which the server does not implement")
	}
	s.resource.fail(resourceRequested, ch.fault(KindConfiguration, s.resource, reason), false, nil)
}
