package controlplane

import (
	"fmt"
	"hash/maphash"
	"iter"
	"strings"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsname"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// hasWildcard reports whether clients may subscribe to all resources of the type at once (Envoy, xDS
// protocol, "How the client specifies what resources to return"). SotW responses of these types
// are complete.
func hasWildcard(typeURL string) bool {
	return typeURL == typeurl.Listener || typeURL == typeurl.Cluster
}

// interest is how a client has subscribed to a type.
type interest int

const (
	// interestUnknown: no request for the type has been processed.
	interestUnknown interest = iota
	// interestLegacyWildcard: no SotW request had a name, which means all resources of a type with a wildcard.
	interestLegacyWildcard
	// interestNamed: what is subscribed is what the names say. No names now means no resources.
	interestNamed
)

// wildcard reports whether the client has subscribed to all resources of the type. The caller holds Store.mu.
func (sub *subscription) wildcard() bool { return sub.wildcards > 0 && hasWildcard(sub.typeURL) }

// pushMode is how the changes of a subscription are sent.
type pushMode int

const (
	// pushAll sends everything that is subscribed (SotW, types with a wildcard, and what is fetched). Which names
	// changed matters only for errors, which are sent once.
	pushAll pushMode = iota
	// pushChanged sends what changed (SotW, other types).
	pushChanged
	// pushDifference sends the difference to what the client knows (delta). Only this mode
	// has glob collections.
	pushDifference
)

func modeOf(p Protocol, complete bool) pushMode {
	switch {
	case p == ProtocolDelta:
		return pushDifference
	case complete:
		return pushAll
	default:
		return pushChanged
	}
}

// setNames replaces names. The caller holds Store.mu.
func (sub *subscription) setNames(names numbers) {
	sub.names, sub.inOrder = names, nil
	sub.byName.Store(nil)
	sub.namesVersion++
}

// askOf returns the ask of a topic that is subscribed by name, nil for any other topic.
func (sub *subscription) askOf(tp topic) *ask {
	if len(sub.names) == 0 {
		return nil
	}
	if sub.addressing == byLocators && !strings.HasPrefix(tp.which, markConstraints) {
		return nil
	}
	if a := sub.table.ask(tp.name, sub.askKey(tp)); a != nil && sub.names.has(a.number) {
		return a
	}
	for a := range sub.asksFor(tp.name) { // its key is another one
		if sub.topicOf(a) == tp {
			return a
		}
	}
	return nil
}

// named reports whether the topic itself is subscribed.
func (sub *subscription) named(tp topic) bool { return sub.askOf(tp) != nil }

// asks returns the asks that are subscribed by name.
func (sub *subscription) asks() iter.Seq[*ask] {
	return func(yield func(*ask) bool) {
		for _, number := range sub.names {
			if !yield(sub.table.index.asks.get(number)) {
				return
			}
		}
	}
}

// asksFor returns those for one name. For a client that subscribes by names there is at most one.
func (sub *subscription) asksFor(key nameKey) iter.Seq[*ask] {
	return func(yield func(*ask) bool) {
		if len(sub.names) == 0 {
			return
		}
		if sub.addressing == byNames {
			if a := sub.table.ask(key, sub.implicit.Key()); a != nil && sub.names.has(a.number) {
				yield(a)
				return
			}
		}
		all := sub.table.asks.m[key]
		if len(all) > crowd {
			for _, a := range sub.grouped()[key] {
				if !yield(a) {
					return
				}
			}
			return
		}
		for _, a := range all {
			if sub.names.has(a.number) && !yield(a) {
				return
			}
		}
	}
}

// grouped returns the asks by name, and keeps them until the names change: the asks of other clients, and those for
// other names, may be many.
func (sub *subscription) grouped() map[nameKey][]*ask {
	if p := sub.byName.Load(); p != nil {
		return *p
	}
	byName := map[nameKey][]*ask{}
	for a := range sub.asks() {
		if a != nil { // it was not left in this turn
			byName[a.name] = append(byName[a.name], a)
		}
	}
	sub.byName.Store(&byName)
	return byName
}

// count returns the number of asks for a name.
func (sub *subscription) count(key nameKey) (n int) {
	for range sub.asksFor(key) {
		n++
	}
	return n
}

// locator returns the client's locator of an ask.
func (sub *subscription) locator(a *ask) locator {
	l := locator{name: a.spelling, refused: a.refused}
	if sub.addressing == byLocators {
		l.constraints = a.sent
	}
	return l
}

// isWildcard reports whether a topic that is subscribed by name is the wildcard.
func (sub *subscription) isWildcard(tp topic) bool {
	return tp.name == wildcardKey && hasWildcard(sub.typeURL)
}

// isCollection reports whether a topic is a glob or the wildcard, whose members are topics. SotW has no such topics.
func (sub *subscription) isCollection(tp topic) bool {
	return sub.mode == pushDifference && (tp.name.isGlob() || sub.isWildcard(tp))
}

// hashSeed makes hashes that clients cannot foresee.
var hashSeed = maphash.MakeSeed()

// hashOf returns the hash of a list of names.
func hashOf(names []string) uint64 {
	var h maphash.Hash
	h.SetSeed(hashSeed)
	for _, name := range names {
		h.WriteString(name)
		h.WriteByte(0xff) // in no UTF-8
	}
	return h.Sum64()
}

// topicOf returns the topic of an ask for a name.
func (sub *subscription) topicOf(a *ask) topic {
	if sub.addressing == byNames {
		return topic{name: a.name}
	}
	return topic{a.name, a.which}
}

// askKey returns the key of the ask of a topic that is subscribed by name, but for those of keyFor that are others.
func (sub *subscription) askKey(tp topic) string {
	if sub.addressing == byNames {
		return sub.implicit.Key()
	}
	return boundKey(tp.which[len(markConstraints):], sub.implicit)
}

// keyFor returns the key of the ask that a locator joins. It is not that of askKey if the resource is denied, or its name is not in canonical form: all
// clients with one spelling share an ask.
func (sub *subscription) keyFor(tp topic, l *locator) string {
	key := sub.askKey(tp)
	if l.isDenied() {
		key = l.askKey()
	}
	if tp.name.collection != "" && xdsname.Canonical(l.name) != l.name {
		key = fmt.Sprintf("%s%d %s%s", markSpelling, len(key), key, l.name)
	}
	return key
}

// spelling returns the name as the client spells it, or as the entry does if the client did not
// subscribe to it by name.
func (sub *subscription) spelling(a *ask, e *entry) string {
	return sub.resourceName(a, e).GetName()
}

// resourceName returns the name of a topic for the client: by its ask or, without one, by an entry.
func (sub *subscription) resourceName(a *ask, e *entry) *discoverypb.ResourceName {
	if a != nil {
		l := sub.locator(a)
		return l.resourceName(sub.addressing)
	}
	if sub.addressing == byNames {
		return &discoverypb.ResourceName{Name: e.name()}
	}
	return variantName(e.name(), e.parameters())
}
