package meshroute

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
)

// Most builds follow a change of the endpoints of one service. This file makes such a mesh out of the previous one without
// looking at the other services, so that its cost grows with the change: of other services only pointers are compared.

// generation identifies a Mesh without keeping it.
type generation struct{ _ byte }

// again returns a mesh that differs from the previous one in some services alone, and in nothing that others depend on. It
// returns nil if it cannot tell.
func (b *builder) again() *Mesh {
	p := b.previous
	if p == nil || len(b.in.Services) != len(p.in.Services) || !slices.Equal(b.in.Policies, p.in.Policies) {
		return nil
	}
	var changed []*Service
	for i, s := range b.in.Services {
		switch old := p.in.Services[i]; {
		case s == old:
		case s.Name != old.Name || !b.alone(s, old):
			return nil
		default:
			changed = append(changed, s)
		}
	}
	m := *p
	m.in, m.generation, m.since, m.differ = b.mesh.in, new(generation), p.generation, nil
	m.services, m.resources = maps.Clone(p.services), maps.Clone(p.resources)
	for _, s := range changed {
		old := p.resources[s.Name]
		b.sessions = map[string]bool{s.Name: old.sessions}
		r, faults := b.service(s)
		if len(faults) > 0 || len(r.servers) > 0 || !slices.Equal(r.keys, old.keys) {
			return nil
		}
		m.services[s.Name] = s
		if r != old {
			m.resources[s.Name] = r
			m.differ = append(m.differ, s.Name)
		}
	}
	slices.Sort(m.differ)
	return &m
}

// clone copies the lists: a caller may change its own for the next build.
func (in Input) clone() Input {
	in.Services, in.Policies = slices.Clone(in.Services), slices.Clone(in.Policies)
	return in
}

// alone reports whether nothing but the resources of a service differs with it: no routes, no reports, and no Listeners that
// services share.
func (b *builder) alone(s, old *Service) bool {
	if b.previous.services[s.Name] != old {
		return false // which was left out
	}
	was := b.previous.resources[s.Name]
	return len(was.subsets) == 0 && len(was.servers) == 0 && proto.Equal(s.Route, old.Route) &&
		proto.Equal(s.ownSessions(), old.ownSessions()) && slices.Equal(reportsOf(s), reportsOf(old))
}

// reportsOf returns the reports on a service by itself.
func reportsOf(s *Service) []Report {
	b := builder{mesh: &Mesh{}}
	b.reportService(s)
	return b.mesh.reports
}
