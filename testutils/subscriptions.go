package testutils

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsname"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// wildcard is the name that subscribes to all resources of a type.
const wildcard = "*"

// topic is what a client is told something about. A client that subscribes by names has one for each name. A
// client that subscribes by locators has one for each locator, and one for each variant that a collection
// (a glob or the wildcard) has for it.
type topic struct {
	name  string // in canonical form
	which string // empty by names; otherwise a mark and a key of constraints or parameters
}

const (
	markConstraints = "?"
	markVariant     = "="
)

// subscription is a topic in the client's words.
type subscription struct {
	name        string
	constraints *discoverypb.DynamicParameterConstraints // nil by names
}

// topics are the subscriptions of a request.
type topics map[topic]subscription

func (t topics) add(name string, constraints *discoverypb.DynamicParameterConstraints, byLocators bool) {
	key := topic{name: xdsname.Canonical(name)}
	if byLocators {
		if constraints == nil {
			constraints = new(discoverypb.DynamicParameterConstraints)
		}
		bytes, _ := proto.MarshalOptions{Deterministic: true}.Marshal(constraints) // what was received can be sent
		key.which = markConstraints + string(bytes)
	}
	t[key] = subscription{name, constraints}
}

// topicsOf returns the subscriptions of a request: TP2 has names ignored where there are locators.
func topicsOf(byLocators bool, names []string, locators []*discoverypb.ResourceLocator) topics {
	t := topics{}
	if byLocators {
		for _, l := range locators {
			t.add(l.GetName(), l.GetDynamicParameterConstraints(), true)
		}
		return t
	}
	for _, name := range names {
		t.add(name, nil, false)
	}
	return t
}

// fact is what a client is to know, or was told, of a topic: a variant or an error, or that there is neither.
type fact struct {
	*variant
	// kept says that there is nothing any more, but that the client is not told yet.
	kept bool
	// again says that the client is told once more, for a collection that it has subscribed to since.
	again bool
}

func (f fact) isResource() bool { return f.variant != nil && f.err == nil }
func (f fact) isError() bool    { return f.variant != nil && f.err != nil }

func (f fact) equal(other fact) bool {
	switch {
	case f.variant == nil || other.variant == nil:
		return f.variant == other.variant
	case f.err == nil && other.err == nil:
		return f.version == other.version
	}
	return f.err != nil && other.err != nil && proto.Equal(f.err.Proto(), other.err.Proto())
}

// facts are what a client is to know, or was told, of one type.
type facts map[topic]fact

// inOrder returns the topics in a fixed order.
func (f facts) inOrder() []topic {
	return slices.SortedFunc(maps.Keys(f), func(a, b topic) int {
		return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.which, b.which))
	})
}

// typeState is what a stream has of one type.
type typeState struct {
	typeURL string
	// complete says that responses have all resources, not only those that are new: SotW of Listeners and
	// Clusters.
	complete   bool
	byLocators bool
	// named says that a request had names: only before that does an empty list mean the wildcard.
	named      bool
	subscribed topics
	// told is what the client was told.
	told facts
	// unanswered says that the client is sent a response even if there is nothing new.
	unanswered bool

	reply TypeStatus
	nonce string // of the last response
}

// hasWildcard reports whether a first request for a type without names asks for everything.
func hasWildcard(typeURL string) bool {
	return typeURL == typeurl.Listener || typeURL == typeurl.Cluster
}

// wanted computes what the client is to know. The caller holds the store's mu.
func (ts *typeState) wanted(s *store, node *corepb.Node) facts {
	w := facts{}
	for tp, sub := range ts.subscribed {
		if !isCollection(tp.name) {
			continue
		}
		if tp.name != wildcard {
			if w[tp] = (fact{variant: s.types[ts.typeURL][tp.name][wholeName]}); w[tp].isError() {
				continue // nothing is said about members
			}
		}
		for name, all := range s.types[ts.typeURL] {
			if isMember(name, tp.name) {
				ts.addMember(w, tp.name, sub, name, all)
			}
		}
	}
	// By names, one topic may be a member and subscribed to: what follows includes its absence.
	for tp, sub := range ts.subscribed {
		if !isCollection(tp.name) {
			w[tp] = fact{variant: s.under(ts.typeURL, tp.name, node).choose(sub.constraints)}
		}
	}
	return w
}

// addMember adds what a collection has under a name: all variants that match or, for a client that knows no
// variants, one. TP3 has no errors for the wildcard.
func (ts *typeState) addMember(w facts, collection string, sub subscription, name string, all variants) {
	found := map[topic]*variant{}
	if ts.byLocators {
		for key, v := range all.matching(sub.constraints) {
			found[topic{name, markVariant + key}] = v
		}
	} else if v := all.choose(nil); v != nil {
		found[topic{name: name}] = v
	}
	for tp, v := range found {
		if v.err == nil || collection != wildcard {
			w[tp] = fact{variant: v}
		}
	}
}

func isCollection(name string) bool { return name == wildcard || xdsname.IsCollection(name) }

// isMember reports whether a name is a member of a collection. The wildcard has everything but globs.
func isMember(name, collection string) bool {
	if xdsname.IsCollection(name) {
		return false
	}
	return collection == wildcard || strings.HasPrefix(name, xdsname.Prefix) && xdsname.CollectionOf(name) == collection
}

// covered reports whether a topic that the client was told of, and that is gone, was a member of a
// collection that the client is still subscribed to: then it is told so.
func (ts *typeState) covered(w facts, tp topic, old fact) bool {
	if strings.HasPrefix(tp.which, markConstraints) || old.variant == nil {
		return false
	}
	for collection, sub := range ts.subscribed {
		if isMember(tp.name, collection.name) && !w[collection].isError() && matches(sub.constraints, old.parameters) {
			return true
		}
	}
	return false
}

// forget makes the client be told again what it subscribes to again.
func (ts *typeState) forget(tp topic, sub subscription) {
	delete(ts.told, tp)
	if !isCollection(tp.name) {
		return
	}
	// Members stay known: of one that goes before the next response, other collections are to be told.
	for member, old := range ts.told {
		if isMember(member.name, tp.name) && !strings.HasPrefix(member.which, markConstraints) &&
			(old.variant == nil || matches(sub.constraints, old.parameters)) {
			old.again = true
			ts.told[member] = old
		}
	}
}

// keepLost adds to what is wanted the resources that the client has and is to lose, for a response before
// its other types have changed (make before break).
func (ts *typeState) keepLost(w facts) {
	for tp, old := range ts.told {
		now, wanted := w[tp]
		if old.isResource() && !now.isResource() && (wanted || ts.covered(w, tp, old)) {
			w[tp] = fact{variant: old.variant, kept: true}
		}
	}
}
