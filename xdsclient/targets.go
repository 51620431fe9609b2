package xdsclient

import (
	"maps"
	"slices"

	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
)

// targetsOf returns what subscriptions are to. They are in order.
func (ts *typeState) targetsOf(subs []*subscription) (t wire.Targets) {
	for _, s := range subs {
		t.Add(s.resource.locator(), ts.dialect)
	}
	return t
}

func (r *resource) locator() wire.Locator {
	return wire.Locator{Name: r.key.name, Constraints: r.constraints}
}

// listAll brings what is listed up to date. It returns the subscriptions that the
// server does not know of, and whether there is any news for it.
func (ts *typeState) listAll() (fresh []*subscription, news bool) {
	fresh, _ = ts.settle()
	var now wire.Targets
	if ts.dialect.Locators() {
		now = ts.targetsOf(slices.DeleteFunc(ts.servedInOrder(), ts.askAgain))
	} else {
		now.Names = ts.servedNames()
	}
	news = !ts.announced || len(fresh) > 0 || !now.Equal(&ts.listed)
	ts.note(&now)
	ts.listed = now
	return fresh, news
}

// askAgain reports whether a subscription has to be left out of a request, so that the
// next one asks for it again. An incremental server "must still provide" what it is
// asked for again, another one keeps silent (Envoy, xDS protocol, "How the client
// specifies what resources to return").
func (ts *typeState) askAgain(s *subscription) bool {
	switch {
	case s.state == subscriptionDoubted:
		s.state = subscriptionUnsent
	case s.repeat: // its resource timer goes on
		s.repeat, s.asked = false, ts.heard
	default:
		return false
	}
	ts.touch(s)
	return true
}

// servedInOrder returns the subscriptions that the variant of the protocol serves.
func (ts *typeState) servedInOrder() []*subscription {
	served := make([]*subscription, 0, len(ts.subs))
	for s := range ts.subs.all() {
		if ts.served(s) {
			served = append(served, s)
		}
	}
	slices.SortFunc(served, bySubscribed)
	return served
}

// servedNames returns the names of what the variant of the protocol serves, but not of
// what is to be asked for again.
func (ts *typeState) servedNames() []string {
	names := make([]string, 0, len(ts.subs))
	for name, first := range ts.subs {
		if !ts.served(first) { // as are its siblings, or not: the name tells
			continue
		}
		again := false
		for s := range first.siblings() {
			again = ts.askAgain(s) || again
		}
		if !again {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// listChanges writes the changes of the subscriptions into a request. In the
// first one of a stream that is all there is, with the versions of what is
// cached. It returns the subscriptions that the server does not know of, and
// whether there is any news for it.
func (ts *typeState) listChanges(r *wire.Request) (fresh []*subscription, news bool) {
	first := !ts.announced
	fresh, left := ts.settle()
	ts.listed = wire.Targets{}
	if first {
		r.Subscribe = ts.everything()
		r.Cached = ts.cached()
		return fresh, true
	}
	r.Subscribe, r.Unsubscribe = ts.targetsOf(fresh), ts.targetsOf(left)
	// A server that goes by names does not know that there is more than one
	// subscription to a name, and need not know that one of them has ended.
	r.Unsubscribe.Names = slices.DeleteFunc(r.Unsubscribe.Names, func(name string) bool { return ts.subs[name] != nil })
	news = len(fresh) > 0 || len(r.Unsubscribe.Names) > 0 || len(r.Unsubscribe.Locators) > 0
	return fresh, news
}

// everything is all there is to subscribe to.
func (ts *typeState) everything() wire.Targets {
	if ts.dialect.Locators() {
		return ts.targetsOf(ts.servedInOrder())
	}
	return wire.Targets{Names: slices.Sorted(maps.Keys(ts.subs))}
}

// cached returns the versions of what the client has from this server, and uses,
// by the resources' own names.
//
// A version under which the server would keep silent, but should not, is left
// empty, so that it sends the resource again: if the server's last word was an
// error it may have gone back to the version in use, which clears the error; of a
// server that was unreachable an answer is wanted, as that is what ends the error;
// and of several subscriptions to one name only those that all have the same
// version need no answer, as there is one version by name.
func (ts *typeState) cached() map[string]string {
	versions := make(map[string]string)
	var apart []string // have siblings without a version
	for s := range ts.subs.all() {
		name := s.resource.key.name
		if ts.subs[name].next != nil && s.payload == nil {
			apart = append(apart, name)
		}
		if own := ts.own[s]; own != "" {
			name = own
		}
		s.cachedVersion(versions, name)
		for m := range s.resource.glob.members().all() {
			m.cachedVersion(versions, m.resource.key.name)
		}
	}
	for _, name := range apart {
		if _, ok := versions[name]; ok {
			versions[name] = ""
		}
	}
	if ts.probe && len(versions) > 0 {
		versions[slices.Min(slices.Collect(maps.Keys(versions)))] = ""
	}
	return versions
}

// cachedVersion adds the version that the client has from the server to those of
// other resources. See typeState.cached.
func (s *subscription) cachedVersion(versions map[string]string, name string) {
	if s.resource.glob != nil || s.payload == nil {
		return
	}
	version := s.taken.version
	if other, ok := versions[name]; s.lastError != nil || ok && other != version {
		version = ""
	}
	versions[name] = version
}
