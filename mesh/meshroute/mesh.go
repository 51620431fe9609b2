package meshroute

import (
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
	in     Input
	naming naming
	places places
	// policies are those that count, mentions what they say of services, which are left out or not, and all services ("").
	policies pmap.Map[*Policy]
	mentions pmap.Map[*mention]
	// wide are the parts for all services, without those that exceed their bound.
	wide, wideOut []*meshpolicy.To
	// services are the resources that services have for themselves, and destinations the routes to these and what is in place of services that
	// only policies name. A service that is left out is in neither.
	services     pmap.Map[*serviceResources]
	destinations pmap.Map[*destination]
	// servers are the Listeners of servers, which may be endpoints of several services, by their keys.
	servers map[string]*Resource
	// resources are all that there are, by their keys.
	resources pmap.Map[*Resource]
	// keys are the tags that select variants, in order.
	keys []string
	// leftOut are reports on services and policies that do not count.
	leftOut []Report
}

// nothing is the mesh before the first one.
var nothing = new(Mesh)

// mention returns what policies say of a name.
func (m *Mesh) mention(name string) *mention {
	if found, ok := m.mentions.Get(name); ok {
		return found
	}
	return unmentioned
}

// service returns the resources that a service has for itself, nil for a missing service.
func (m *Mesh) service(name string) *serviceResources {
	r, _ := m.services.Get(name)
	return r
}

// destination returns the routes to a service, nil for a name that is neither a service nor in any policy.
func (m *Mesh) destination(name string) *destination {
	if d, _ := m.destinations.Get(name); d != nil && len(d.variants.list) > 0 {
		return d
	}
	return nil
}

// Resources returns all resources, ordered by their keys.
func (m *Mesh) Resources() []*Resource {
	return slices.SortedFunc(m.All, func(a, b *Resource) int { return strings.Compare(a.Key(), b.Key()) })
}

// Resource returns the resource with a key, nil for none.
func (m *Mesh) Resource(key string) *Resource {
	r, _ := m.resources.Get(key)
	return r
}

// All calls yield for each resource, in no order, until it returns false.
func (m *Mesh) All(yield func(*Resource) bool) {
	for _, r := range m.resources.All {
		if !yield(r) {
			return
		}
	}
}

// Changes returns what was added or changed since an earlier Mesh that m was built from, and what was
// removed, in no order. since may be nil. A name can be in both, with different variants. Resources of services and policies that are the
// same pointers are not compared.
func (m *Mesh) Changes(since *Mesh) (changed, removed []*Resource) {
	if since == nil {
		since = nothing
	}
	m.resources.Diff(since.resources, func(_ string, old, r *Resource, had, has bool) {
		switch {
		case !has:
			removed = append(removed, old)
		case !had || !old.Equal(r):
			changed = append(changed, r)
		}
	})
	return changed, removed
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
	isOfOthers := func(p *meshpolicy.To) bool { return !p.Clients.Selects(c) }
	return meshpolicy.MergeParts(slices.DeleteFunc(slices.Clone(d.parts), isOfOthers)), true
}

// ListenerName returns the name under which clients subscribe to a service.
func (m *Mesh) ListenerName(service string) string {
	return m.naming.resource(ListenerType, service)
}
