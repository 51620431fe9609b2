package cluster

import (
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/dynxds/dynxds/mesh/meshroute"
)

// entry is what one Service is in the mesh: a service for each of its TCP ports.
type entry struct {
	services []*meshroute.Service
	// names are those of the services, with their aliases.
	names []string
	// problems are why endpoints are left out.
	problems []string
	// ports are by the names of the services.
	ports map[string]*port
}

// port is a TCP port of a Service.
type port struct {
	service   *meshroute.Service
	endpoints []instance
	// held has the addresses of endpoints that no slice has any more, and until when they are kept.
	held map[string]time.Time
}

// moving is how long an endpoint is kept that was ready, and that no slice has: it may be about to appear in another slice, as
// the controller writes one after the other. A pod that is deleted is terminating before.
//
//	slice a has 10.0.0.1, ready      it is served
//	slice a has it no more           it is kept
//	slice b has it, 20 ms later      nothing has changed for clients
const moving = 300 * time.Millisecond

// update makes the services from a Service and its slices. It reports whether they changed, and when to call it again
// because of endpoints that are kept, zero if there are none. s is nil if the Service is gone.
func (e *entry) update(of named, s *corev1.Service, slicesOf []*discoveryv1.EndpointSlice, domain string, now time.Time) (changed bool, again time.Time) {
	before := *e
	*e = entry{ports: map[string]*port{}}
	if s != nil {
		for i, p := range Ports(s) {
			name := serviceName(of, p.Port)
			old := before.ports[name]
			if old == nil {
				old = &port{}
			}
			made := e.build(name, of, s, slicesOf, p, old, now)
			made.service.Aliases = aliases(of, p, i == 0, domain)
			if reflect.DeepEqual(made.service, old.service) {
				made.service = old.service // the same pointer, of which nothing is built again
			}
			e.ports[name] = made
			e.services, e.names = append(e.services, made.service), append(e.names, name)
			for _, a := range made.service.Aliases {
				e.names = append(e.names, a.Name)
			}
			for _, until := range made.held {
				if again.IsZero() || until.Before(again) {
					again = until
				}
			}
		}
	}
	return !slices.Equal(before.services, e.services) || !slices.Equal(before.problems, e.problems), again
}

// build makes the service of a port, but for its aliases.
func (e *entry) build(name string, of named, s *corev1.Service, slicesOf []*discoveryv1.EndpointSlice, p corev1.ServicePort, old *port, now time.Time) *port {
	made := &port{service: &meshroute.Service{Name: name, Source: meshroute.Source{File: of.String()}}, held: map[string]time.Time{}}
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		made.service.ExternalName = net.JoinHostPort(strings.TrimSuffix(s.Spec.ExternalName, "."), strconv.Itoa(int(p.Port)))
		return made
	}
	list, problems := instances(s, slicesOf, p)
	made.endpoints, e.problems = list, append(e.problems, problems...)
	made.keep(old, now)
	made.service.Endpoints = distinct(endpoints(made.endpoints))
	return made
}

// keep adds the endpoints that were ready before and that may be moving to another slice.
func (p *port) keep(before *port, now time.Time) {
	for _, old := range before.endpoints {
		_, there := slices.BinarySearchFunc(p.endpoints, old, func(a, b instance) int { return strings.Compare(a.Address, b.Address) })
		if there || old.Health != corepb.HealthStatus_UNKNOWN {
			continue
		}
		until, known := before.held[old.Address]
		if !known {
			until = now.Add(moving)
		}
		if !now.Before(until) {
			continue
		}
		p.held[old.Address] = until
		p.endpoints = unique(append(p.endpoints, old))
	}
}
