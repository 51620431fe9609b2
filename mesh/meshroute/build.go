package meshroute

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/dynxds/dynxds/internal/pmap"
	"github.com/dynxds/dynxds/mesh/internal/document"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
)

// Input is the input of Build. It must not be changed afterwards.
type Input struct {
	// Services have unique names.
	Services []*Service
	// Policies are from Parse, and have unique names.
	Policies []*Policy
	// Authority gives resources names of xRFC TP1, "xdstp://authority/type/name"; if it is empty,
	// they have plain names. Only resources with an authority use DPDS.
	Authority string
	// SourceDir, if it is not empty, is the directory of the files in Source. Resources then have in
	// their metadata where their parts were written, for tools that explain what a client does: in
	// filter_metadata under "dynxds.source", a Struct with a string for each part, which is "file:line"
	// relative to SourceDir, or several with ", " between them. The parts of a Route are "matches",
	// "filters", "backendRefs", "timeouts", "retry" and "sessionPersistence", as far as policies have them;
	// of a Listener "service" and "filters", of a Cluster "service" and "tls", and of an LbEndpoint
	// "endpoint". Clients ignore it.
	//
	// It makes no difference to variants. If clients share one, the places are those of all rules
	// that decide for some of them.
	SourceDir string
	// Separate says that services and policies have authors of their own, of whom none may harm another. A service or policy
	// that is wrong is then left out, and a Report says so (Report.LeftOut), where Build fails otherwise. The policies of one
	// namespace may tell apart 256 kinds of clients of a service; newer ones are left out for the service.
	Separate bool
}

// clone copies the lists: a caller may change its own for the next build.
func (in Input) clone() Input {
	in.Services, in.Policies = slices.Clone(in.Services), slices.Clone(in.Policies)
	return in
}

// Build builds a Mesh. The order of the input does not matter. The error is a *[Faults]: duplicate names
// and invalid services, unless these are left out (Input.Separate), and too many tags.
//
// previous is an earlier Mesh, or nil. The new one shares with it what is made of the same services and policies, by their
// pointers.
func Build(in Input, previous *Mesh) (*Mesh, error) {
	b := &builder{mesh: &Mesh{in: in.clone(), naming: naming{in.Authority}, places: newPlaces(in.SourceDir)}, previous: nothing}
	if previous != nil && previous.naming == b.mesh.naming && previous.places == b.mesh.places && previous.in.Separate == in.Separate {
		b.previous = previous
	}
	b.indexPolicies()
	b.compileServices()
	b.mesh.shared = make(map[resourceKey]*Resource)
	b.compileServers()
	b.compileMissing()
	b.compileDestinations()
	if err := b.faults.Err(); err != nil {
		return nil, err
	}
	return b.mesh, nil
}

// builder makes a Mesh out of what has changed since the previous one.
type builder struct {
	mesh, previous *Mesh
	faults         Faults
}

// policyIndex groups policies by the services that they are about.
type policyIndex struct {
	// counting are those that count, in their order.
	counting []*Policy
	// parts are by destination; those for all services are under "".
	parts map[string][]meshpolicy.Part
	// subsets are by service.
	subsets map[string]map[string]meshpolicy.Subset
	// sessions has the services to which some routes have sessions of their own.
	sessions map[string]bool
	// leftOut are reports on policies that do not count.
	leftOut []Report
	// list are all reports on policies by themselves, once they are asked for.
	once sync.Once
	list []Report
}

func (b *builder) indexPolicies() {
	in := &b.mesh.in
	if slices.Equal(in.Policies, b.previous.in.Policies) {
		b.mesh.policies = b.previous.policies
		return
	}
	x := &policyIndex{
		parts:   make(map[string][]meshpolicy.Part),
		subsets: make(map[string]map[string]meshpolicy.Subset), sessions: make(map[string]bool),
	}
	b.mesh.policies = x
	byName := make(map[string]*Policy, len(in.Policies))
	for _, p := range in.Policies {
		if first, twice := byName[p.Name]; twice {
			b.leaveOut(&x.leftOut, p.Name, faultAt(p.Source, "policy %s is defined twice; the other definition is at %s", p.Name, first.Source))
			continue
		}
		byName[p.Name] = p
		x.counting = append(x.counting, p)
		for i := range p.To {
			name := p.To[i].TargetRef.Name
			x.parts[name] = append(x.parts[name], meshpolicy.Part{Policy: p, To: i})
			for _, s := range p.To[i].Subsets() {
				if x.subsets[s.Service] == nil {
					x.subsets[s.Service] = make(map[string]meshpolicy.Subset)
				}
				x.subsets[s.Service][s.ID] = s
			}
			if slices.ContainsFunc(p.To[i].Rules, func(r meshpolicy.Rule) bool { return r.Session != nil }) {
				x.sessions[name] = true
			}
		}
	}
	if in.Separate {
		x.admitWide()
	}
}

// faultAt returns an error of a service or policy.
func faultAt(at Source, problem string, args ...any) document.Fault {
	return document.Fault{File: at.File, Line: at.Line, Problem: fmt.Sprintf(problem, args...)}
}

// leaveOut notes in a list why a service or policy cannot be used: policy is the name of a policy, or empty.
func (b *builder) leaveOut(list *[]Report, policy string, f document.Fault) {
	if !b.mesh.in.Separate {
		b.faults.Add(f)
		return
	}
	*list = append(*list, Report{
		Severity: Error, LeftOut: true, Policy: policy, Source: Source{File: f.File, Line: f.Line}, Path: f.Path, Message: f.Problem,
	})
}

// differing returns the services of a list that another does not have at the same place, counted from the start or from the end.
func differing(list, other []*Service) (differ []*Service) {
	for i, s := range list {
		if j := i + len(other) - len(list); (i >= len(other) || other[i] != s) && (j < 0 || other[j] != s) {
			differ = append(differ, s)
		}
	}
	return differ
}

// compileServices looks only at services that may have changed. It looks at all if policies have, or if one is left out or has the name of
// another: which one counts does not depend on the previous mesh.
func (b *builder) compileServices() {
	before, all := b.previous.in.Services, b.mesh.in.Services
	gone, list := differing(before, all), differing(all, before)
	services := b.previous.services.Edit()
	for _, s := range gone {
		services.Delete(s.Name)
	}
	if b.mesh.policies != b.previous.policies || b.previous.services.Len() < len(before) || len(before)-len(gone)+len(list) < len(all) ||
		slices.ContainsFunc(list, func(s *Service) bool { _, twice := services.Get(s.Name); return twice }) {
		services, list = new(pmap.Builder[*serviceResources]), all
	}
	for _, s := range list {
		if other, twice := services.Get(s.Name); twice {
			b.leaveOut(&b.mesh.leftOut, "", faultAt(s.Source, "service %s is defined twice; the other definition is at %s", s.Name, other.service.Source))
			continue
		}
		r, faults := b.service(s, b.previous.service(s.Name))
		if r != nil {
			services.Set(s.Name, r)
		}
		for _, f := range faults {
			b.leaveOut(&b.mesh.leftOut, "", f)
		}
	}
	b.mesh.services = services.Map()
}

// service returns the resources of a service, those of the previous build if they are made of the same, or its errors.
func (b *builder) service(s *Service, old *serviceResources) (*serviceResources, []document.Fault) {
	policies := b.mesh.policies
	if old != nil && old.service == s && policies == b.previous.policies {
		return old, nil
	}
	ids, sessions := slices.Sorted(maps.Keys(policies.subsets[s.Name])), policies.sessions[s.Name]
	if old != nil && old.service == s && slices.Equal(old.subsets, ids) && old.sessions == sessions {
		return old, nil
	}
	if faults := s.check(); len(faults) > 0 {
		return nil, faults
	}
	subsets := make([]meshpolicy.Subset, len(ids))
	for i, id := range ids {
		subsets[i] = policies.subsets[s.Name][id]
	}
	r, err := compileService(b.mesh.naming, b.mesh.places, s, subsets, sessions)
	if err != nil {
		return nil, []document.Fault{faultAt(s.Source, "service %s: %v", s.Name, err)}
	}
	r.subsets, r.sessions = ids, sessions
	return r, nil
}

// compileDestinations looks only at names whose services have changed. If services came or went, it looks also at what policies are about,
// as these may name them, and if policies did, or some are for all services, at all.
func (b *builder) compileDestinations() {
	m, destinations := b.mesh, b.previous.destinations.Edit()
	update := func(name string) {
		old := b.previous.destination(name)
		if d, _ := destinations.Get(name); d != old {
			return // it has been updated
		}
		if m.service(name) == nil && (name == "" || m.policies.parts[name] == nil) {
			destinations.Delete(name)
		} else {
			destinations.Set(name, b.destination(name, old))
		}
	}
	samePolicies := m.policies == b.previous.policies
	sameNames := true
	m.services.Diff(b.previous.services, func(name string, _, _ *serviceResources, had, has bool) {
		update(name)
		sameNames = sameNames && had == has
	})
	if !samePolicies || !sameNames {
		for name := range m.policies.parts {
			update(name)
		}
	}
	if !samePolicies || !sameNames && m.policies.parts[""] != nil {
		for name := range m.services.All {
			update(name)
		}
		for name := range b.previous.policies.parts {
			update(name)
		}
	}
	m.destinations = destinations.Map()
	keys := make(map[string]bool)
	for _, r := range m.services.All {
		for _, key := range r.keys {
			keys[key] = true
		}
	}
	for _, d := range m.destinations.All {
		for _, key := range d.variants.keys {
			keys[key] = true
		}
	}
	if m.keys = slices.Sorted(maps.Keys(keys)); len(m.keys) > maxAllTags {
		b.faults.Add(document.Fault{Problem: fmt.Sprintf("the policies distinguish clients by %d tags, more than %d", len(m.keys), maxAllTags)})
	}
}

// destination returns what a name leads to: the destination of the previous mesh, if it is made of the same.
func (b *builder) destination(name string, old *destination) *destination {
	m, own := b.mesh, b.mesh.service(name)
	given := slices.Concat(m.policies.parts[""], m.policies.parts[name])
	slices.SortFunc(given, meshpolicy.Part.Compare)
	in := routeInput{service: name, exists: own != nil, given: given, knows: b.knows(given)}
	if own != nil {
		in.settings, in.sessions = own.service.Route, sessionFilter
		if filter := own.service.ownSessions(); filter != nil {
			in.sessions = filter.GetName()
		}
	}
	if old != nil && old.routeInput.equal(&in) {
		return old
	}
	c := compiler{naming: m.naming, places: m.places, known: b.known, separate: m.in.Separate, destination: &destination{routeInput: in}}
	c.compile()
	return c.destination
}

// known reports whether there is a service of a name, which is not left out.
func (b *builder) known(service string) bool { return b.mesh.service(service) != nil }

// knows says of each service that parts name whether it is known.
func (b *builder) knows(parts []meshpolicy.Part) (list []bool) {
	for _, p := range parts {
		for _, name := range p.Policy.To[p.To].Services() {
			list = append(list, b.known(name))
		}
	}
	return list
}
