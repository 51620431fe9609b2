package folder

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/dynxds/dynxds/internal/document"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

// merged is a service with the endpoints of its slices.
type merged struct {
	// document is nil if there are only slices.
	document *service
	slices   []*endpointSlice
	result   *meshroute.Service
	faults   document.Faults
}

// merge returns the services of the documents and of the slices. A service whose documents are the same as
// the last time is the same value.
func (j *Joiner) merge(documents []*service, all []*endpointSlice, faults *document.Faults) []*meshroute.Service {
	bySlice := make(map[string][]*endpointSlice)
	for _, s := range all {
		bySlice[s.service] = append(bySlice[s.service], s)
	}
	last := j.merged
	j.merged = make(map[string]*merged, len(bySlice))
	var services []*meshroute.Service
	add := func(name string, doc *service) {
		list := bySlice[name]
		delete(bySlice, name)
		slices.SortFunc(list, func(a, b *endpointSlice) int { return strings.Compare(a.name, b.name) })
		m := last[name]
		if m == nil || m.document != doc || !slices.Equal(m.slices, list) {
			m = &merged{document: doc, slices: list}
			m.result = m.merge(name)
		}
		j.merged[name] = m
		faults.AddAll(&m.faults)
		services = append(services, m.result)
	}
	for _, doc := range documents {
		if len(bySlice[doc.Name]) == 0 && doc.port == "" {
			services = append(services, doc.Service)
			continue
		}
		add(doc.Name, doc)
	}
	for _, s := range all {
		if len(bySlice[s.service]) > 0 {
			add(s.service, nil)
		}
	}
	return services
}

// merge adds the endpoints of the slices to those of the document.
func (m *merged) merge(name string) *meshroute.Service {
	s := &meshroute.Service{Name: name}
	port := ""
	if m.document != nil {
		*s, port = *m.document.Service, m.document.port
		s.Endpoints = slices.Clone(s.Endpoints)
	} else {
		s.Source = m.slices[0].source
	}
	if len(m.slices) == 0 {
		m.fault(s.Source, "leave out port, or add the slices", "the service has a port, which selects one of EndpointSlices, and none")
	}
	index := make(map[string]int, len(s.Endpoints))
	for i, e := range s.Endpoints {
		index[e.Address] = i
	}
	own := len(s.Endpoints)
	bothFamilies := slices.ContainsFunc(m.slices, func(s *endpointSlice) bool { return !s.ipv6 && len(s.endpoints) > 0 })
	for _, slice := range m.slices {
		if slice.ipv6 && bothFamilies || len(slice.endpoints) == 0 {
			continue
		}
		number, ok := m.port(slice, port)
		if !ok {
			continue
		}
		for _, e := range slice.endpoints {
			e = at(e, number)
			switch i, twice := index[e.Address]; {
			case !twice:
				index[e.Address] = len(s.Endpoints)
				s.Endpoints = append(s.Endpoints, e)
			case i >= own && better(e.Health, s.Endpoints[i].Health):
				s.Endpoints[i] = e
			}
		}
	}
	// Kubernetes moves endpoints about, which makes no difference.
	slices.SortFunc(s.Endpoints[own:], func(a, b meshroute.Endpoint) int { return strings.Compare(a.Address, b.Address) })
	return s
}

// better reports whether a is a better health than b.
func better(a, b corepb.HealthStatus) bool {
	rank := map[corepb.HealthStatus]int{corepb.HealthStatus_DRAINING: 1, corepb.HealthStatus_UNHEALTHY: 2}
	return rank[a] < rank[b]
}

// port returns the number of a slice's port for gRPC: the one that the service names, by name or number;
// else the only one; else the only one whose name or protocol says that it is for gRPC.
func (m *merged) port(s *endpointSlice, wanted string) (number uint64, ok bool) {
	var names []string
	var grpc []slicePort
	for _, p := range s.ports {
		names = append(names, strconv.Quote(cmp.Or(p.name, strconv.FormatUint(p.number, 10))))
		if wanted != "" && (p.name == wanted || strconv.FormatUint(p.number, 10) == wanted) {
			return p.number, true
		}
		if p.protocol == "grpc" || p.protocol == "kubernetes.io/h2c" || p.name == "grpc" || strings.HasPrefix(p.name, "grpc-") {
			grpc = append(grpc, p)
		}
	}
	list := strings.Join(names, ", ")
	switch {
	case wanted != "":
		m.fault(s.source, "", "EndpointSlice %s has no port %q, which service %s uses; it has %s", s.name, wanted, s.service, cmp.Or(list, "none"))
	case len(s.ports) == 0:
		m.fault(s.source, "", "EndpointSlice %s has endpoints, and no TCP port", s.name)
	case len(s.ports) == 1:
		return s.ports[0].number, true
	case len(grpc) == 1:
		return grpc[0].number, true
	default:
		m.fault(s.source, fmt.Sprintf("add a document {kind: Service, name: %s, port: …}", s.service),
			"EndpointSlice %s has the ports %s, and it is unclear which is for gRPC", s.name, list)
	}
	return 0, false
}

func (m *merged) fault(at meshroute.Source, suggestion, problem string, args ...any) {
	m.faults.Add(document.Fault{File: at.File, Line: at.Line, Problem: fmt.Sprintf(problem, args...), Suggestion: suggestion})
}
