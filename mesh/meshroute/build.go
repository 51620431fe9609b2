package meshroute

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

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
	b := &builder{mesh: &Mesh{in: in.clone(), naming: naming{in.Authority}, places: places{in.SourceDir}}, previous: nothing}
	if previous != nil && previous.naming == b.mesh.naming && previous.places == b.mesh.places && previous.in.Separate == in.Separate {
		b.previous = previous
	}
	b.indexPolicies()
	b.compileServices()
	b.compileServers()
	b.compileDestinations()
	b.collectKeys()
	b.collectResources()
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

// faultAt returns an error of a service or policy.
func faultAt(at Source, problem string, args ...any) document.Fault {
	return document.Fault{File: at.File, Line: at.Line, Problem: fmt.Sprintf(problem, args...)}
}

// leaveOut notes why a service or policy cannot be used: policy is the name of a policy, or empty.
func (b *builder) leaveOut(policy string, f document.Fault) {
	if !b.mesh.in.Separate {
		b.faults.Add(f)
		return
	}
	b.mesh.leftOut = append(b.mesh.leftOut, Report{
		Severity: Error, LeftOut: true, Policy: policy, Source: Source{File: f.File, Line: f.Line}, Path: f.Path, Message: f.Problem,
	})
}

// renewed returns what was made of a list, by name, without what is gone from the list now, and what of the list is to be added. This is
// all, if something was left out or has the name of another: which one counts does not depend on the previous mesh.
func renewed[T, V comparable](before, list []T, made pmap.Map[V], name func(T) string) (kept *pmap.Builder[V], added []T) {
	gone, added := differing(before, list), differing(list, before)
	kept = made.Edit()
	for _, one := range gone {
		kept.Delete(name(one))
	}
	if made.Len() < len(before) || len(before)-len(gone)+len(added) < len(list) ||
		slices.ContainsFunc(added, func(one T) bool { _, twice := kept.Get(name(one)); return twice }) {
		return new(pmap.Builder[V]), list
	}
	return kept, added
}

// differing returns what of a list another does not have at the same place, counted from the start or from the end.
func differing[T comparable](list, other []T) (differ []T) {
	for i, one := range list {
		if j := i + len(other) - len(list); (i >= len(other) || other[i] != one) && (j < 0 || other[j] != one) {
			differ = append(differ, one)
		}
	}
	return differ
}

// mention is what the policies that count say of a name.
type mention struct {
	// to are the parts for requests to it, from the least to the most specific one, and from are those that send or mirror requests to it.
	to, from []*meshpolicy.To
	// reports are on the rules in to by themselves.
	reports func() []Report
}

// unmentioned is a name of which policies say nothing.
var unmentioned = &mention{}

// subsets returns those that policies send requests to.
func (m *mention) subsets(service string) meshpolicy.Subsets {
	all := make(meshpolicy.Subsets)
	for _, p := range m.from {
		maps.Copy(all, p.Subsets()[service])
	}
	return all
}

// indexPolicies looks only at policies that have changed, and at what these mention.
func (b *builder) indexPolicies() {
	m, before := b.mesh, b.previous
	policies, added := renewed(before.in.Policies, m.in.Policies, before.policies, func(p *Policy) string { return p.Name })
	for _, p := range added {
		if first, twice := policies.Get(p.Name); twice {
			b.leaveOut(p.Name, faultAt(p.Source, "policy %s is defined twice; the other definition is at %s", p.Name, first.Source))
			continue
		}
		policies.Set(p.Name, p)
	}
	m.policies = policies.Map()
	changed := make(map[string]*mention)
	isGone := func(p *meshpolicy.To) bool {
		now, _ := m.policies.Get(p.Policy.Name)
		return now != p.Policy
	}
	of := func(name string) *mention {
		if changed[name] == nil {
			old := before.mention(name)
			changed[name] = &mention{to: slices.DeleteFunc(slices.Clone(old.to), isGone), from: slices.DeleteFunc(slices.Clone(old.from), isGone)}
		}
		return changed[name]
	}
	m.policies.Diff(before.policies, func(_ string, old, now *Policy, _, _ bool) {
		for _, p := range []*Policy{old, now} {
			if p == nil {
				continue
			}
			for i := range p.To {
				part, to := &p.To[i], of(p.To[i].TargetRef.Name)
				if p == now {
					to.to = append(to.to, part)
				}
				for service := range part.Subsets() {
					if from := of(service); p == now {
						from.from = append(from.from, part)
					}
				}
			}
		}
	})
	mentions := before.mentions.Edit()
	for name, now := range changed {
		slices.SortFunc(now.to, (*meshpolicy.To).Compare)
		now.reports = sync.OnceValue(func() []Report { return reportsOn(now.to) })
		if mentions.Set(name, now); len(now.to)+len(now.from) == 0 {
			mentions.Delete(name)
		}
	}
	m.mentions = mentions.Map()
	m.wide, m.wideOut = before.wide, before.wideOut
	if wide := changed[""]; wide != nil {
		m.wide, m.wideOut = wide.to, nil
		if m.in.Separate {
			m.wide, m.wideOut = admit(wide.to, widely)
		}
	}
}

// compileServices looks only at services that have changed, or that other policies mention.
func (b *builder) compileServices() {
	m, before := b.mesh, b.previous
	services, added := renewed(before.in.Services, m.in.Services, before.services, func(s *Service) string { return s.Name })
	m.mentions.Diff(before.mentions, func(name string, _, _ *mention, _, _ bool) {
		if r, _ := services.Get(name); r != nil {
			services.Delete(name)
			added = append(added, r.service)
		}
	})
	for _, s := range added {
		if other, twice := services.Get(s.Name); twice {
			b.leaveOut("", faultAt(s.Source, "service %s is defined twice; the other definition is at %s", s.Name, other.service.Source))
			continue
		}
		r, faults := b.service(s, before.service(s.Name))
		if r != nil {
			services.Set(s.Name, r)
		}
		for _, f := range faults {
			b.leaveOut("", f)
		}
	}
	m.services = services.Map()
}

// service returns the resources of a service, those of the previous build if they are made of the same, or its errors.
func (b *builder) service(s *Service, old *serviceResources) (*serviceResources, []document.Fault) {
	mention := b.mesh.mention(s.Name)
	subsets := mention.subsets(s.Name)
	sessions := slices.ContainsFunc(mention.to, func(p *meshpolicy.To) bool {
		return slices.ContainsFunc(p.Rules, func(r meshpolicy.Rule) bool { return r.Session != nil })
	})
	if old != nil && old.service == s && maps.EqualFunc(old.subsets, subsets, maps.Equal) && old.sessions == sessions {
		return old, nil
	}
	if faults := s.Check(); len(faults) > 0 {
		for i := range faults {
			faults[i].Problem = fmt.Sprintf("service %s: %s", s.Name, faults[i].Problem)
		}
		return nil, faults
	}
	r, err := compileService(b.mesh.naming, b.mesh.places, s, subsets, sessions)
	if err != nil {
		return nil, []document.Fault{faultAt(s.Source, "service %s: %v", s.Name, err)}
	}
	return r, nil
}

// compileDestinations looks only at names whose services have changed, or that other policies mention; if a service came or went, also at names
// whose policies send requests to it; and at all names, if the policies for all services are others, or if one of these sends requests to it.
func (b *builder) compileDestinations() {
	m, before := b.mesh, b.previous
	names := make(map[string]bool) // false says that only the settings of the service may be others
	m.mentions.Diff(before.mentions, func(name string, _, _ *mention, _, _ bool) {
		names[name] = m.service(name) == nil || !slices.Equal(m.mention(name).to, before.mention(name).to)
	})
	m.services.Diff(before.services, func(name string, _, _ *serviceResources, had, has bool) {
		if names[name] = names[name] || had != has; had == has {
			return
		}
		for _, p := range m.mention(name).from {
			names[p.TargetRef.Name] = true
		}
	})
	if names[""] {
		for name := range m.services.All {
			names[name] = true
		}
		for name := range m.mentions.All {
			names[name] = true
		}
		delete(names, "")
	}
	destinations := before.destinations.Edit()
	for name, isOther := range names {
		if m.service(name) != nil || m.mention(name) != unmentioned {
			destinations.Set(name, b.destination(name, isOther))
		} else {
			destinations.Delete(name)
		}
	}
	m.destinations = destinations.Map()
}

// destination returns what a name leads to, if it is not what it was or the settings of the service are others.
func (b *builder) destination(name string, isOther bool) *destination {
	m, own, to := b.mesh, b.mesh.service(name), b.mesh.mention(name).to
	if !isOther {
		if old := b.previous.service(name).service; old.sessionsName() == own.service.sessionsName() && proto.Equal(old.Route, own.service.Route) {
			d, _ := b.previous.destinations.Get(name)
			return d
		}
	}
	c := compiler{destination: &destination{service: name, variants: new(variants)}, mesh: m, own: own}
	var parts []*meshpolicy.To
	if own != nil || len(to) > 0 {
		parts = slices.Concat(m.wide, to)
		slices.SortFunc(parts, (*meshpolicy.To).Compare)
	}
	c.compile(parts)
	return c.destination
}

// collectResources looks only at the resources of services, destinations and servers that have changed.
func (b *builder) collectResources() {
	m, before := b.mesh, b.previous
	var old, now []*Resource
	replace := func(was, is []*Resource) { old, now = append(old, was...), append(now, is...) }
	m.services.Diff(before.services, func(_ string, was, is *serviceResources, _, _ bool) { replace(was.resources(), is.resources()) })
	m.destinations.Diff(before.destinations, func(_ string, was, is *destination, _, _ bool) { replace(was.resources(), is.resources()) })
	for key, r := range before.servers {
		if m.servers[key] != r {
			old = append(old, r)
		}
	}
	for key, r := range m.servers {
		if before.servers[key] != r {
			now = append(now, r)
		}
	}
	resources, has := before.resources.Edit(), make(map[string]bool, len(now))
	for _, r := range now {
		key := r.Key()
		has[key] = true
		// What is equal stays: a change of endpoints copies the shards of the ClusterLoadAssignments only.
		if was, _ := resources.Get(key); was == nil || was.Service != r.Service || !was.Equal(r) {
			resources.Set(key, r)
		}
	}
	for _, r := range old {
		if key := r.Key(); !has[key] {
			resources.Delete(key)
		}
	}
	m.resources = resources.Map()
}

// collectKeys collects the keys of all variants.
func (b *builder) collectKeys() {
	m, keys := b.mesh, make(map[string]bool)
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
