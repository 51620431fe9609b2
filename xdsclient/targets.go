package xdsclient

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// locator is what a server is asked for: a resource or a collection, and which
// variant of it (xRFC TP2).
type locator struct {
	name        string
	constraints dynparam.Constraints
}

// targets are what a request asks for, or takes back, in order. names has each name
// once. locators is nil if the server is not asked for variants.
type targets struct {
	names    []string
	locators []locator
}

// targetsOf returns what subscriptions are to. They are in order.
func (ts *typeState) targetsOf(subs []*subscription) (t targets) {
	for _, s := range subs {
		if n := len(t.names); n == 0 || t.names[n-1] != s.resource.key.name {
			t.names = append(t.names, s.resource.key.name)
		}
		if ts.locators {
			t.locators = append(t.locators, s.resource.locator())
		}
	}
	return t
}

func (r *resource) locator() locator { return locator{r.key.name, r.constraints} }

func (t *targets) equal(other *targets) bool {
	return slices.Equal(t.names, other.names) && slices.EqualFunc(t.locators, other.locators, locator.equal)
}

func (l locator) equal(other locator) bool {
	return l.name == other.name && l.constraints.Equal(other.constraints)
}

// listAll brings what is listed up to date. It returns the subscriptions that the
// server does not know of, and whether there is any news for it.
func (ts *typeState) listAll() (fresh []*subscription, news bool) {
	fresh, _ = ts.settle()
	var now targets
	if ts.locators {
		now = ts.targetsOf(slices.DeleteFunc(ts.servedInOrder(), ts.askAgain))
	} else {
		now.names = ts.servedNames()
	}
	news = !ts.announced || len(fresh) > 0 || !now.equal(&ts.listed)
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
func (ts *typeState) listChanges(r *request) (fresh []*subscription, news bool) {
	first := !ts.announced
	fresh, left := ts.settle()
	ts.listed = targets{}
	if first {
		r.subscribe = ts.everything()
		r.cached = ts.cached()
		return fresh, true
	}
	r.subscribe, r.unsubscribe = ts.targetsOf(fresh), ts.targetsOf(left)
	// A server that goes by names does not know that there is more than one
	// subscription to a name, and need not know that one of them has ended.
	r.unsubscribe.names = slices.DeleteFunc(r.unsubscribe.names, func(name string) bool { return ts.subs[name] != nil })
	news = len(fresh) > 0 || len(r.unsubscribe.names) > 0 || len(r.unsubscribe.locators) > 0
	return fresh, news
}

// everything is all there is to subscribe to.
func (ts *typeState) everything() targets {
	if ts.locators {
		return ts.targetsOf(ts.servedInOrder())
	}
	return targets{names: slices.Sorted(maps.Keys(ts.subs))}
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
		for m := range s.resource.glob.all() {
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

// appendLocators adds locators, as occurrences of a field, to a message in
// serialized form. They are not made messages first, as a request of the SotW variant
// repeats all of them.
func appendLocators(b []byte, field protowire.Number, locators []locator) []byte {
	const name, constraints = 1, 2 // fields of ResourceLocator
	for _, l := range locators {
		key := l.constraints.Key() // the constraints in serialized form
		size := protowire.SizeTag(name) + protowire.SizeBytes(len(l.name))
		if key != "" {
			size += protowire.SizeTag(constraints) + protowire.SizeBytes(len(key))
		}
		b = protowire.AppendTag(b, field, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(size))
		b = protowire.AppendTag(b, name, protowire.BytesType)
		b = protowire.AppendString(b, l.name)
		if key != "" {
			b = protowire.AppendTag(b, constraints, protowire.BytesType)
			b = protowire.AppendString(b, key)
		}
	}
	return b
}
