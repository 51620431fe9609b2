package meshroute

import (
	"maps"
	"slices"
	"strings"

	"github.com/dynxds/dynxds/internal/pmap"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// Mesh is everything that a control plane serves, for all clients. It is immutable;
// any number of goroutines may use one.
type Mesh struct {
	in       Input
	naming   naming
	places   places
	policies *policyIndex
	// services are the resources that services have for themselves, and destinations the routes to these and to what only policies
	// name, by name. A service that is left out is in neither.
	services     pmap.Map[*serviceResources]
	destinations pmap.Map[*destination]
	// shared are the resources that no service has for itself: the Listeners of servers, and what is in
	// place of missing services.
	shared map[resourceKey]*Resource
	// keys are the tags that select variants, in order.
	keys []string
	// leftOut are reports on services that do not count.
	leftOut []Report
}

// nothing is the mesh before the first one.
var nothing = &Mesh{policies: new(policyIndex)}

// service returns the resources that a service has for itself, nil for a missing service.
func (m *Mesh) service(name string) *serviceResources {
	r, _ := m.services.Get(name)
	return r
}

// destination returns the routes to a service, nil for a name that is neither a service nor in any policy.
func (m *Mesh) destination(name string) *destination {
	d, _ := m.destinations.Get(name)
	return d
}

// Resources returns all resources in a stable order.
func (m *Mesh) Resources() []*Resource {
	var all []*Resource
	for _, name := range names(m.destinations) {
		all = append(append(all, m.service(name).resources()...), m.destination(name).resources()...)
	}
	return append(all, inOrder(m.shared)...)
}

// Changes returns what was added or changed since an earlier Mesh that m was built from, and what was
// removed. since may be nil. A name can be in both, with different variants. Resources of services and policies that are the same
// pointers are not compared.
func (m *Mesh) Changes(since *Mesh) (changed, removed []*Resource) {
	if since == nil {
		since = nothing
	}
	before, now := make(map[resourceKey]*Resource), make(map[resourceKey]*Resource)
	compare := func(old, list []*Resource) {
		for _, r := range old {
			before[r.key()] = r
		}
		for _, r := range list {
			if k := r.key(); before[k] == r {
				delete(before, k)
			} else {
				now[k] = r
			}
		}
	}
	compare(slices.Collect(maps.Values(since.shared)), slices.Collect(maps.Values(m.shared)))
	m.services.Diff(since.services, func(_ string, old, r *serviceResources, _, _ bool) { compare(old.resources(), r.resources()) })
	m.destinations.Diff(since.destinations, func(_ string, old, d *destination, _, _ bool) { compare(old.resources(), d.resources()) })
	for k, r := range now {
		if old := before[k]; old == nil || !old.Equal(r) {
			changed = append(changed, r)
		}
		delete(before, k)
	}
	return changed, inOrder(before)
}

// names returns the names in a map, in order.
func names[V comparable](m pmap.Map[V]) []string {
	list := make([]string, 0, m.Len())
	for name := range m.All {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

func inOrder(set map[resourceKey]*Resource) []*Resource {
	return slices.SortedFunc(maps.Values(set), func(a, b *Resource) int {
		return strings.Compare(a.TypeURL+"\x00"+a.Name+"\x00"+a.Parameters.Key(), b.TypeURL+"\x00"+b.Name+"\x00"+b.Parameters.Key())
	})
}

// Routes returns a client's RouteConfiguration for a service, or the error in its place: the variant
// that its constraints choose, or one with the same content. It is for clients without dynamic
// parameters. It is nil for a name that is neither a service nor in any policy.
func (m *Mesh) Routes(c Client, service string) *Resource {
	d := m.destination(service)
	if d == nil {
		return nil
	}
	return d.variants.of(c)
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
	d := m.destination(service)
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
