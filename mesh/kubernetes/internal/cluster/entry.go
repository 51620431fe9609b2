package cluster

import (
	"net"
	"reflect"
	"slices"
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
	// lists are the endpoints of the services.
	lists [][]instance
	// problems are why endpoints are left out.
	problems []string
	// moving is Options.Moving.
	moving time.Duration
	// held has the endpoints that no slice has any more, by service and address, and until when they are kept.
	held map[string]time.Time
}

// Moving is how long an endpoint is kept that was ready, and that no slice has: it may be about to appear in another slice, as
// the controller writes one after the other. A pod that is deleted is terminating before.
//
//	slice a has 10.0.0.1, ready      it is served
//	slice a has it no more           it is kept
//	slice b has it, 20 ms later      nothing has changed for clients
const Moving = 300 * time.Millisecond

// update makes the services from a Service and its slices. It reports whether they changed, and when to call it again
// because of endpoints that are kept, zero if there are none. s is nil if the Service is gone.
func (e *entry) update(of named, s *corev1.Service, slicesOf []*discoveryv1.EndpointSlice, domain string, now time.Time) (changed bool, again time.Time) {
	before, lists, problems := e.services, e.lists, e.problems
	e.services, e.lists, e.problems = nil, nil, nil
	if s != nil {
		byName := make(map[string][]instance, len(before))
		for i, service := range before {
			byName[service.Name] = lists[i]
		}
		again = e.build(of, s, slicesOf, domain, byName, now)
	}
	same := slices.EqualFunc(before, e.services, func(a, b *meshroute.Service) bool { return reflect.DeepEqual(a, b) })
	for i, service := range e.services {
		// What is equal stays the same pointer, of which nothing is built again.
		if j := slices.IndexFunc(before, func(b *meshroute.Service) bool { return reflect.DeepEqual(b, service) }); j >= 0 {
			e.services[i] = before[j]
		}
	}
	return !same || !slices.Equal(problems, e.problems), again
}

// build makes the services. before has the endpoints that they had.
func (e *entry) build(of named, s *corev1.Service, slicesOf []*discoveryv1.EndpointSlice, domain string, before map[string][]instance, now time.Time) (again time.Time) {
	held := e.held
	e.held = nil
	for i, p := range ports(s) {
		service := &meshroute.Service{
			Name: serviceName(of, p.Port), Source: meshroute.Source{File: of.String()}, Aliases: aliases(of, p, i == 0, domain),
		}
		var list []instance
		if s.Spec.Type == corev1.ServiceTypeExternalName {
			service.ExternalName = net.JoinHostPort(strings.TrimSuffix(s.Spec.ExternalName, "."), strings.TrimPrefix(service.Name, of.host()+":"))
		} else {
			var problems []string
			list, problems = instances(s, slicesOf, p)
			e.problems = append(e.problems, problems...)
			list = e.keep(service.Name, list, before[service.Name], held, now)
			service.Endpoints = distinct(endpoints(list))
		}
		e.services, e.lists = append(e.services, service), append(e.lists, list)
	}
	for _, until := range e.held {
		if again.IsZero() || until.Before(again) {
			again = until
		}
	}
	return again
}

// keep adds the endpoints that were ready before and that may be moving to another slice.
func (e *entry) keep(service string, list, before []instance, held map[string]time.Time, now time.Time) []instance {
	for _, old := range before {
		_, there := slices.BinarySearchFunc(list, old, func(a, b instance) int { return strings.Compare(a.Address, b.Address) })
		if there || old.Health != corepb.HealthStatus_UNKNOWN {
			continue
		}
		key := service + " " + old.Address
		until, known := held[key]
		if !known {
			until = now.Add(e.moving)
		}
		if !now.Before(until) {
			continue
		}
		if e.held == nil {
			e.held = make(map[string]time.Time)
		}
		e.held[key] = until
		list = unique(append(list, old))
	}
	return list
}
