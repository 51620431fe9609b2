package controlplane

import (
	"hash/maphash"
	"iter"
	"sync/atomic"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsname"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
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
	// interestLegacyWildcard: no request had a name (SotW) or the first one had none (delta),
	// which means all resources of a type with a wildcard.
	interestLegacyWildcard
	// interestNamed: there were names, or a delta client has unsubscribed from "*", and "*" is
	// not among the present names. No names now means no resources.
	interestNamed
	// interestWildcard: "*" is among the names.
	interestWildcard
)

func (i interest) wildcard() bool { return i == interestLegacyWildcard || i == interestWildcard }

// pushMode is how the changes of a subscription are sent.
type pushMode int

const (
	// pushAll sends everything that is subscribed (SotW, types with a wildcard). Which names
	// changed matters only for errors, which are sent once.
	pushAll pushMode = iota
	// pushChanged sends what changed (SotW, other types).
	pushChanged
	// pushDifference sends the difference to what the client knows (delta). Only this mode
	// has glob collections.
	pushDifference
)

func modeOf(p Protocol, typeURL string) pushMode {
	switch {
	case p == ProtocolDelta:
		return pushDifference
	case hasWildcard(typeURL):
		return pushAll
	default:
		return pushChanged
	}
}

// selection is what a stream subscribes to of one type. Store.mu guards it.
type selection struct {
	typeURL    string
	mode       pushMode
	addressing addressing

	// table is that of the type.
	table *table
	// names are the asks that the client's names, or locators, have joined. The wildcard of a
	// client that subscribes by names is not among them.
	names askedSet
	// namesVersion counts the changes of names.
	namesVersion uint64
	// inOrder caches asksInOrder, or is nil. The stream's sender sets it with Store.mu held for reading; it
	// is cleared with Store.mu held for writing.
	inOrder []*ask
	// byName caches grouped, or is nil. It is set with Store.mu held for reading, and cleared as inOrder is.
	byName atomic.Pointer[map[nameKey][]*ask]
	// aside is how many of the asks have another key than that of their topic.
	aside int
	// listed is the hash of the names of the last SotW request. Only the reader uses it.
	listed   uint64
	interest interest

	// implicit are the constraints of a client that sends none, or those that its node adds to its locators.
	implicit dynparam.Constraints
}

// changeNames changes names. The caller holds Store.mu.
func (s *selection) changeNames(removed, added []uint32) {
	s.names, s.inOrder = s.names.change(removed, added), nil
	s.byName.Store(nil)
	s.namesVersion++
}

// dropNames removes all names. The caller holds Store.mu.
func (s *selection) dropNames() {
	s.names, s.inOrder = askedSet{}, nil
	s.byName.Store(nil)
	s.namesVersion++
}

// askOf returns the ask of a topic that is subscribed by name, nil for any other topic.
func (s *selection) askOf(tp topic) *ask {
	if s.names.len() == 0 {
		return nil
	}
	if s.addressing == byLocators && (len(tp.which) == 0 || tp.which[:1] != markConstraints) {
		return nil
	}
	if a := s.table.ask(tp.name, s.askKey(tp)); a != nil && s.names.has(a.number) {
		return a
	}
	if s.aside > 0 {
		for a := range s.asksFor(tp.name) {
			if s.topicOf(a) == tp {
				return a
			}
		}
	}
	return nil
}

// named reports whether the topic itself is subscribed.
func (s *selection) named(tp topic) bool { return s.askOf(tp) != nil }

// asks returns the asks that are subscribed by name.
func (s *selection) asks() iter.Seq[*ask] {
	return func(yield func(*ask) bool) {
		for _, number := range s.names.all() {
			if !yield(s.table.index.asks.get(number)) {
				return
			}
		}
	}
}

// asksFor returns those for one name. For a client that subscribes by names there is at most one.
func (s *selection) asksFor(key nameKey) iter.Seq[*ask] {
	return func(yield func(*ask) bool) {
		if s.names.len() == 0 {
			return
		}
		all := s.table.asks.m[key]
		if len(all) > crowd {
			for _, a := range s.grouped()[key] {
				if !yield(a) {
					return
				}
			}
			return
		}
		for _, a := range all {
			if s.names.has(a.number) && !yield(a) {
				return
			}
		}
	}
}

// grouped returns the asks by name, and keeps them until the names change: the asks of other clients, and those for
// other names, may be many.
func (s *selection) grouped() map[nameKey][]*ask {
	if p := s.byName.Load(); p != nil {
		return *p
	}
	byName := map[nameKey][]*ask{}
	for a := range s.asks() {
		if a != nil { // it was not left in this turn
			byName[a.name] = append(byName[a.name], a)
		}
	}
	s.byName.Store(&byName)
	return byName
}

// count returns the number of asks for a name.
func (s *selection) count(key nameKey) (n int) {
	for range s.asksFor(key) {
		n++
	}
	return n
}

// locator returns the client's locator of an ask.
func (s *selection) locator(a *ask) locator {
	l := locator{name: a.spelling, refused: a.refused}
	if s.addressing == byLocators {
		l.constraints = a.sent
	}
	return l
}

// isWildcard reports whether a topic that is subscribed by name is the wildcard.
func (s *selection) isWildcard(tp topic) bool {
	return tp.name == wildcardKey && hasWildcard(s.typeURL)
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
func (s *selection) topicOf(a *ask) topic {
	if s.addressing == byNames {
		return topic{name: a.name}
	}
	return topic{a.name, a.which}
}

// askKey returns the key of the ask of a topic that is subscribed by name, unless it is aside.
func (s *selection) askKey(tp topic) string {
	if s.addressing == byNames {
		return s.implicit.Key()
	}
	return boundKey(tp.which[len(markConstraints):], s.implicit)
}

// keyFor returns the key of the ask that a locator joins. It is aside if the resource is denied, or its name is not in canonical form: all
// clients with one spelling share an ask.
func (s *selection) keyFor(tp topic, l *locator) string {
	key := s.askKey(tp)
	if l.isDenied() {
		key = l.askKey()
	}
	if tp.name.collection != "" && xdsname.Canonical(l.name) != l.name {
		key = spelledKey(key, l.name)
	}
	return key
}

// withConstraints returns a locator with the constraints that apply. The caller holds
// Store.mu.
func (s *selection) withConstraints(l locator) locator {
	if s.addressing == byNames {
		l.constraints = s.implicit
	} else {
		l.bound = s.implicit
	}
	return l
}

// spelling returns the name as the client spells it, or as the entry does if the client did not
// subscribe to it by name.
func (s *selection) spelling(tp topic, e *entry) string {
	if a := s.askOf(tp); a != nil {
		return s.locator(a).name
	}
	return e.name()
}

// resourceName returns the name of a topic for the client.
func (s *selection) resourceName(tp topic, e *entry) *discoverypb.ResourceName {
	if a := s.askOf(tp); a != nil {
		l := s.locator(a)
		return l.resourceName(s.addressing)
	}
	if s.addressing == byNames {
		return &discoverypb.ResourceName{Name: e.name()}
	}
	return variantName(e.name(), e.parameters())
}
