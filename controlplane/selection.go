package controlplane

import (
	"cmp"
	"slices"

	"github.com/dynxds/dynxds/internal/typeurl"
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

// selection is what a stream subscribes to of one type. The stream's reader writes it under
// Store.mu, and so may read it without.
type selection struct {
	typeURL string
	mode    pushMode
	dialect dialect

	// names has the client's locators by topic.
	names map[topic]locator
	// listed are the names of the last SotW request. Only the reader uses it.
	listed []string
	// topics has the topics of names by name, for byLocators only.
	topics   map[nameKey]map[topic]struct{}
	interest interest

	// closed are the collections that are closed, and whether the client has subscribed to them
	// again since.
	closed map[topic]bool

	// implicit are the constraints of a client that sends none.
	implicit dynparam.Constraints
}

// add subscribes to a topic by name.
func (s *selection) add(tp topic, l locator) {
	s.names[tp] = l
	if s.dialect == byNames {
		return
	}
	if s.topics == nil {
		s.topics = map[nameKey]map[topic]struct{}{}
	}
	addTo(s.topics, tp.name, tp, true)
}

// remove undoes add.
func (s *selection) remove(tp topic) {
	delete(s.names, tp)
	if s.dialect == byLocators {
		addTo(s.topics, tp.name, tp, false)
	}
}

// named reports whether the topic itself is subscribed.
func (s *selection) named(tp topic) bool {
	_, ok := s.names[tp]
	return ok
}

// isWildcard reports whether a topic that is subscribed by name is the wildcard.
func (s *selection) isWildcard(tp topic) bool {
	return tp.name == wildcardKey && hasWildcard(s.typeURL)
}

// lists reports whether a request has the names of the previous one, as most ACKs have.
func (s *selection) lists(req *discoverypb.DiscoveryRequest) bool {
	return s.dialect == byNames && s.interest != interestUnknown && slices.Equal(s.listed, req.GetResourceNames())
}

// topicOf returns the topic of an ask for a name.
func (s *selection) topicOf(key nameKey, a *ask) topic {
	if s.dialect == byNames {
		return topic{name: key}
	}
	return topic{key, markConstraints + a.key}
}

// askKey returns the key of the ask of a subscribed topic. The caller holds Store.mu.
func (s *selection) askKey(tp topic) string {
	if s.dialect == byNames {
		return s.implicit.Key()
	}
	return tp.which[len(markConstraints):]
}

// withConstraints returns a locator with the constraints that apply. The caller holds
// Store.mu.
func (s *selection) withConstraints(l locator) locator {
	if s.dialect == byNames {
		l.constraints = s.implicit
	}
	return l
}

// wants reports whether a topic is subscribed, by name or through a collection.
func (s *selection) wants(tp topic, e *entry) bool {
	return s.named(tp) || s.inWildcard(tp, e) || s.inGlob(tp, e)
}

// wantsName is wants for the name of a resource, with any parameters.
func (s *selection) wantsName(r *Resource) bool {
	if s.dialect == byNames {
		return s.wants(topic{name: r.key}, nil)
	}
	return s.interest.wildcard() || len(s.topics[r.key]) > 0
}

// inGlob reports whether the topic is in a subscribed glob collection. e is the topic's present or
// last entry.
func (s *selection) inGlob(tp topic, e *entry) bool {
	if s.mode != pushDifference || tp.name.collection == "" || tp.name.isGlob() {
		return false
	}
	if s.dialect == byNames {
		glob := topic{name: tp.name.glob()}
		return s.named(glob) && !s.isClosed(glob)
	}
	return s.covers(tp.name.glob(), tp, e)
}

// inWildcard is inGlob for the wildcard.
func (s *selection) inWildcard(tp topic, e *entry) bool {
	if s.dialect == byNames {
		return s.interest.wildcard() && !s.isClosed(wildcardTopic)
	}
	return hasWildcard(s.typeURL) && s.covers(wildcardKey, tp, e)
}

// covers reports whether a client that subscribes by locators has subscribed to the collection with
// constraints that the variant matches.
func (s *selection) covers(collection nameKey, tp topic, e *entry) bool {
	if _, ok := tp.variant(); !ok || e == nil {
		return false
	}
	for asked := range s.topics[collection] {
		l := s.names[asked]
		if l.refused == nil && !s.isClosed(asked) && l.constraints.Match(e.parameters()) {
			return true
		}
	}
	return false
}

// spelling returns the name as the client spells it, or as the entry does if the client did not
// subscribe to it by name.
func (s *selection) spelling(tp topic, e *entry) string {
	if l, ok := s.names[tp]; ok {
		return l.name
	}
	return e.name()
}

// resourceName returns the name of a topic for the client.
func (s *selection) resourceName(tp topic, e *entry) *discoverypb.ResourceName {
	if l, ok := s.names[tp]; ok {
		return l.resourceName(s.dialect)
	}
	if s.dialect == byNames {
		return &discoverypb.ResourceName{Name: e.name()}
	}
	return variantName(e.name(), e.parameters())
}

// wrapped reports whether the resources must be wrapped, for their parameters (TP2, "API Changes"),
// or for the name and cache control of a DPDS resource.
func (s *selection) wrapped() bool {
	return s.dialect == byLocators || s.typeURL == dynparam.MapTypeURL
}

// sortedNames returns the subscribed names in order. The caller holds Store.mu.
func (s *selection) sortedNames() []string {
	names := make([]string, 0, len(s.names))
	for tp, l := range s.names {
		if !s.isWildcard(tp) {
			names = append(names, l.name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// locators returns the subscribed locators in order. The caller holds Store.mu.
func (s *selection) locators() []Locator {
	if s.dialect == byNames {
		return nil
	}
	locators := make([]Locator, 0, len(s.names))
	for _, l := range s.names {
		locators = append(locators, Locator{l.name, l.constraints})
	}
	slices.SortFunc(locators, func(a, b Locator) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Constraints.Key(), b.Constraints.Key()))
	})
	return locators
}
