package meshroute

import (
	"maps"
	"slices"
	"strings"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// Mesh is everything that a control plane serves, for all clients. It is immutable;
// any number of goroutines may use one.
type Mesh struct {
	in Input
	// since is the generation of the mesh from which this one differs in the resources of the services differ alone; nil: no
	// such mesh is known.
	generation, since *generation
	differ            []string

	naming   naming
	places   places
	services map[string]*Service
	// resources are the resources of services that do not depend on routes.
	resources map[string]*serviceResources
	// shared are the resources that no service has for itself: the Listeners of servers, and what is in
	// place of missing services.
	shared map[resourceKey]*Resource
	// destinations has each service, and each missing service that a policy has rules for.
	destinations map[string]*destination
	// names are the sorted names of the destinations.
	names []string
	// keys are the tags that select variants, in order.
	keys    []string
	reports []Report
	// serviceReports are the reports on single services, by name of the service.
	serviceReports map[string][]Report
}

// Resources returns all resources in a stable order.
func (m *Mesh) Resources() []*Resource {
	var all []*Resource
	for _, name := range m.names {
		all = append(all, m.resourcesOf(name)...)
	}
	return appendInOrder(all, m.shared)
}

// resourcesOf returns the resources of one destination.
func (m *Mesh) resourcesOf(name string) []*Resource {
	d := m.destinations[name]
	if d == nil {
		return nil
	}
	list := slices.Concat(d.routes(), d.dead)
	if d.missing != nil {
		return append([]*Resource{d.missing}, list...)
	}
	return slices.Concat(m.resources[name].list, list)
}

// Changes returns what was added or changed since an earlier Mesh that m was built from, and what was
// removed. since may be nil. A name can be in both, with different variants. The cost grows with the
// services that differ.
func (m *Mesh) Changes(since *Mesh) (changed, removed []*Resource) {
	if since == nil {
		return m.Resources(), nil
	}
	changed, removed = m.sharedChanges(since)
	// A Mesh that Build did not make has no generation.
	next := m.since != nil && m.since == since.generation
	names := m.names
	if next {
		names = m.differ
	}
	for _, name := range names {
		if m.same(since, name) {
			continue
		}
		old := make(map[resourceKey]*Resource)
		for _, r := range since.resourcesOf(name) {
			old[r.key()] = r
		}
		for _, r := range m.resourcesOf(name) {
			if old[r.key()] != r {
				changed = append(changed, r)
			}
			delete(old, r.key())
		}
		removed = appendInOrder(removed, old)
	}
	if !next {
		for _, name := range since.names {
			if m.destinations[name] == nil {
				removed = append(removed, since.resourcesOf(name)...)
			}
		}
	}
	return changed, withoutReplaced(removed, changed)
}

// withoutReplaced leaves out what a changed resource replaces: that of a service replaces the error in its
// place, and the other way round.
func withoutReplaced(removed, changed []*Resource) []*Resource {
	if len(removed) == 0 {
		return removed
	}
	replaced := make(map[resourceKey]bool, len(changed))
	for _, r := range changed {
		replaced[r.key()] = true
	}
	return slices.DeleteFunc(removed, func(r *Resource) bool { return replaced[r.key()] })
}

// same reports whether a destination is unchanged.
func (m *Mesh) same(since *Mesh, name string) bool {
	return m.destinations[name].sameAs(since.destinations[name]) && m.resources[name] == since.resources[name]
}

func appendInOrder[K comparable](list []*Resource, set map[K]*Resource) []*Resource {
	return append(list, slices.SortedFunc(maps.Values(set), func(a, b *Resource) int {
		return strings.Compare(a.TypeURL+"\x00"+a.Name+"\x00"+a.Parameters.Key(), b.TypeURL+"\x00"+b.Name+"\x00"+b.Parameters.Key())
	})...)
}

// Routes returns a client's RouteConfiguration for a service, or the error in its place: the variant
// that its constraints choose, or one with the same content. It is for clients without dynamic
// parameters. It is nil for a name that is neither a service nor in any policy.
func (m *Mesh) Routes(c Client, service string) *Resource {
	d := m.destinations[service]
	if d == nil {
		return nil
	}
	return d.placed.of(d.variants.of(c))
}

// ConstraintsFor returns the constraints with which a client must subscribe to get its variants from a
// Mesh with these Keys, for its DPDS resource (xRFC TP2). There are at most 120 keys, each once. It fails if
// the client's tags are too large.
//
// A client without a constraint for a key matches every value of it, and the most specific variant
// wins. So when a new mesh adds a key, clients should subscribe with constraints for the keys of both
// before they are served from the new mesh (TP2, "Matching Ambiguity", "the expected order of
// changes"). An additional key does no harm.
func ConstraintsFor(c Client, keys []string) (dynparam.ByType, error) {
	if len(keys) == 0 {
		return dynparam.ByType{}, nil
	}
	byType := make(map[string][]dynparam.KeyConstraints, 2)
	for _, key := range keys {
		name := typeurl.Name(typeSelectedBy(key))
		byType[name] = append(byType[name], dynparam.Require(key, dynparam.Value(c.Tag(key))))
	}
	all := make(map[string]dynparam.Constraints, len(byType))
	for name, list := range byType {
		var err error
		if all[name], err = dynparam.New(append(list, dynparam.Require(meshpolicy.SpecificityKey, dynparam.InRanges(dynparam.AtLeast(0))))...); err != nil {
			return dynparam.ByType{}, err
		}
	}
	return dynparam.NewByType(all)
}

// typeSelectedBy returns the type whose variants a key selects.
func typeSelectedBy(key string) (typeURL string) {
	switch key {
	case meshpolicy.AddressesKey, meshpolicy.ZoneKey, meshpolicy.NodeKey:
		return EndpointsType
	case meshpolicy.NamespaceKey:
		return ListenerType
	default:
		return RouteConfigurationType
	}
}

// Keys returns the sorted tags that select variants, for ConstraintsFor.
func (m *Mesh) Keys() []string { return slices.Clone(m.keys) }

// Merged returns the rules for the requests of a client to a service, with their policies. ok is false
// for a name that is neither a service nor in any policy.
func (m *Mesh) Merged(c Client, service string) (merged Merged, ok bool) {
	d := m.destinations[service]
	if d == nil {
		return Merged{}, false
	}
	var parts []meshpolicy.Part
	for _, p := range d.parts {
		if p.Policy.TargetRef.Selects(c) {
			parts = append(parts, p)
		}
	}
	return meshpolicy.MergeParts(parts), true
}

// ListenerName returns the name under which clients subscribe to a service.
func (m *Mesh) ListenerName(service string) string {
	return m.naming.resource(ListenerType, service)
}

// Reports returns the reports for the authors of policies and services, ordered by file and line.
func (m *Mesh) Reports() []Report { return slices.Clone(m.reports) }
