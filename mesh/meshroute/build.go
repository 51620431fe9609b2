package meshroute

import (
	"fmt"
	"maps"
	"slices"

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

// Build builds a Mesh. The order of the input does not matter. The error is a *[Faults]: duplicate names
// and invalid services, unless these are left out (Input.Separate), and too many tags.
//
// previous is an earlier Mesh, or nil. The new one shares with it, by pointer, everything that does not
// depend on changed input.
func Build(in Input, previous *Mesh) (*Mesh, error) {
	b := &builder{in: in, mesh: &Mesh{in: in.clone(), generation: new(generation), naming: naming{in.Authority}, places: newPlaces(in.SourceDir)}}
	if previous != nil && previous.naming == b.mesh.naming && previous.places == b.mesh.places && previous.in.Separate == in.Separate {
		b.previous = previous
	}
	if m := b.again(); m != nil {
		return m, nil
	}
	b.index()
	if err := b.faults.Err(); err != nil {
		return nil, err
	}
	b.compileServices()
	b.mesh.shared = make(map[resourceKey]*Resource)
	b.compileServers()
	b.compileMissing()
	b.compileDestinations()
	if err := b.faults.Err(); err != nil {
		return nil, err
	}
	b.report()
	return b.mesh, nil
}

type builder struct {
	in       Input
	mesh     *Mesh
	previous *Mesh
	faults   Faults

	policies map[string]*Policy
	// parts are by destination; those for all services are under "".
	parts map[string][]meshpolicy.Part
	// subsets are by service.
	subsets map[string]map[string]meshpolicy.Subset
	// sessions has the services to which some routes have sessions of their own.
	sessions map[string]bool
}

// index groups the input by service.
func (b *builder) index() {
	b.mesh.services = make(map[string]*Service, len(b.in.Services))
	for _, s := range b.in.Services {
		if first, twice := b.mesh.services[s.Name]; twice {
			b.leaveOut("", faultAt(s.Source, "service %s is defined twice; the other definition is at %s", s.Name, first.Source))
			continue
		}
		b.mesh.services[s.Name] = s
	}
	b.policies = make(map[string]*Policy, len(b.in.Policies))
	counting := make([]*Policy, 0, len(b.in.Policies))
	b.parts = make(map[string][]meshpolicy.Part)
	b.subsets, b.sessions = make(map[string]map[string]meshpolicy.Subset), make(map[string]bool)
	for _, p := range b.in.Policies {
		if first, twice := b.policies[p.Name]; twice {
			b.leaveOut(p.Name, faultAt(p.Source, "policy %s is defined twice; the other definition is at %s", p.Name, first.Source))
			continue
		}
		b.policies[p.Name] = p
		counting = append(counting, p)
		for i := range p.To {
			name := p.To[i].TargetRef.Name
			b.parts[name] = append(b.parts[name], meshpolicy.Part{Policy: p, To: i})
			b.indexSubsets(&p.To[i])
			if slices.ContainsFunc(p.To[i].Rules, func(r meshpolicy.Rule) bool { return r.Session != nil }) {
				b.sessions[name] = true
			}
		}
	}
	b.in.Policies = counting
	if b.in.Separate {
		b.admitWide()
	}
}

// faultAt returns a fault of a service or policy.
func faultAt(at Source, problem string, args ...any) document.Fault {
	return document.Fault{File: at.File, Line: at.Line, Problem: fmt.Sprintf(problem, args...)}
}

// leaveOut notes why a service or policy cannot be used: policy is the name of a policy, or empty.
func (b *builder) leaveOut(policy string, f document.Fault) {
	if !b.in.Separate {
		b.faults.Add(f)
		return
	}
	b.mesh.reports = append(b.mesh.reports, Report{
		Severity: Error, LeftOut: true, Policy: policy, Source: Source{File: f.File, Line: f.Line}, Path: f.Path, Message: f.Problem,
	})
}

func (b *builder) indexSubsets(t *meshpolicy.To) {
	for _, s := range t.Subsets() {
		if b.subsets[s.Service] == nil {
			b.subsets[s.Service] = make(map[string]meshpolicy.Subset)
		}
		b.subsets[s.Service][s.ID] = s
	}
}

func (b *builder) compileServices() {
	b.mesh.resources = make(map[string]*serviceResources, len(b.mesh.services))
	for _, name := range slices.Sorted(maps.Keys(b.mesh.services)) {
		r, faults := b.service(b.mesh.services[name])
		for _, f := range faults {
			b.leaveOut("", f)
		}
		if len(faults) > 0 {
			delete(b.mesh.services, name)
			continue
		}
		b.mesh.resources[name] = r
	}
}

// service returns the resources of a service, or its faults. Resources that have not changed are those of the previous build.
func (b *builder) service(s *Service) (*serviceResources, []document.Fault) {
	ids := slices.Sorted(maps.Keys(b.subsets[s.Name]))
	var old *serviceResources
	if b.previous != nil {
		old = b.previous.resources[s.Name]
	}
	sessions := b.sessions[s.Name]
	if old != nil && old.service.equal(s) && slices.Equal(old.subsets, ids) && old.sessions == sessions {
		return old, nil
	}
	if faults := s.check(); len(faults) > 0 {
		return nil, faults
	}
	subsets := make([]meshpolicy.Subset, len(ids))
	for i, id := range ids {
		subsets[i] = b.subsets[s.Name][id]
	}
	r, err := compileService(b.mesh.naming, b.mesh.places, s, subsets, sessions)
	if err != nil {
		return nil, []document.Fault{faultAt(s.Source, "service %s: %v", s.Name, err)}
	}
	r.subsets, r.sessions = ids, sessions
	if old != nil {
		r.reuse(old)
	}
	return r, nil
}

func (b *builder) compileDestinations() {
	m := b.mesh
	names := make(map[string]bool, len(m.services))
	for name := range m.services {
		names[name] = true
	}
	for name := range b.parts {
		names[name] = true
	}
	delete(names, "")
	m.names = slices.Sorted(maps.Keys(names))
	m.destinations = make(map[string]*destination, len(names))
	keys := make(map[string]bool)
	for _, name := range m.names {
		d := b.destination(name)
		m.destinations[name] = d
		for _, key := range d.variants.keys {
			keys[key] = true
		}
	}
	for _, r := range m.resources {
		for _, key := range r.keys {
			keys[key] = true
		}
	}
	if m.keys = slices.Sorted(maps.Keys(keys)); len(m.keys) > maxAllTags {
		b.faults.Add(document.Fault{Problem: fmt.Sprintf("the policies distinguish clients by %d tags, more than %d", len(m.keys), maxAllTags)})
	}
}

// destination compiles the routes to a service, or reuses those of the previous mesh.
func (b *builder) destination(name string) *destination {
	given := slices.Concat(b.parts[""], b.parts[name])
	slices.SortFunc(given, meshpolicy.Part.Compare)
	if old := b.unchanged(name, given); old != nil {
		return old
	}
	parts, leftOut := b.admitAt(b.parts[""], b.parts[name])
	slices.SortFunc(parts, meshpolicy.Part.Compare)
	c := compiler{
		naming: b.mesh.naming, service: name, known: b.known, exists: b.known(name), parts: parts, leftOut: leftOut, unbounded: b.in.Separate,
	}
	if s := b.mesh.services[name]; s != nil {
		c.settings, c.sessions = s.Route, sessionFilter
		if own := s.ownSessions(); own != nil {
			c.sessions = own.GetName()
		}
	}
	digest := c.digest()
	if b.previous != nil {
		if d := b.previous.destinations[name]; d != nil && d.digest == digest {
			return b.place(&destination{compiled: d.compiled, given: given, parts: c.parts}, name)
		}
	}
	compiled := c.compile()
	compiled.digest = digest
	return b.place(&destination{compiled: compiled, given: given, parts: c.parts}, name)
}

// unchanged returns the destination of the previous mesh, if nothing that it depends on is another value than then.
func (b *builder) unchanged(name string, parts []meshpolicy.Part) *destination {
	p := b.previous
	if p == nil || p.services[name] != b.mesh.services[name] {
		return nil
	}
	old := p.destinations[name]
	if old == nil || !slices.Equal(old.given, parts) {
		return nil
	}
	for _, part := range parts {
		for _, name := range part.Policy.To[part.To].Services() {
			if (p.services[name] != nil) != b.known(name) {
				return nil
			}
		}
	}
	return old
}

func (b *builder) known(service string) bool { return b.mesh.services[service] != nil }
