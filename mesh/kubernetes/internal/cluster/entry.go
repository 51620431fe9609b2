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
	// instances are the endpoints by the names of the services, with those that are kept.
	instances map[string][]instance
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
	*e = entry{instances: map[string][]instance{}}
	if s != nil {
		for i, p := range Ports(s) {
			made := &meshroute.Service{Name: serviceName(of, p.Port), Source: meshroute.Source{File: of.String()}, Aliases: aliases(of, p, i == 0, domain)}
			if s.Spec.Type == corev1.ServiceTypeExternalName {
				made.ExternalName = net.JoinHostPort(strings.TrimSuffix(s.Spec.ExternalName, "."), strconv.Itoa(int(p.Port)))
			} else {
				list, problems := instances(s, slicesOf, p)
				list, until := keep(list, before.instances[made.Name], now)
				made.Endpoints = distinct(endpoints(list))
				e.instances[made.Name], e.problems, again = list, append(e.problems, problems...), earlier(again, until)
			}
			if old := slices.IndexFunc(before.services, func(old *meshroute.Service) bool { return old.Name == made.Name }); old >= 0 && reflect.DeepEqual(before.services[old], made) {
				made = before.services[old] // the same pointer, of which nothing is built again
			}
			e.services, e.names = append(e.services, made), append(e.names, made.Name)
			for _, a := range made.Aliases {
				e.names = append(e.names, a.Name)
			}
		}
	}
	return !slices.Equal(before.services, e.services) || !slices.Equal(before.problems, e.problems), again
}

// keep adds the endpoints that were ready before and that may be moving to another slice, and returns when the first of them is kept no more.
func keep(list, before []instance, now time.Time) (_ []instance, until time.Time) {
	for _, old := range before {
		_, there := slices.BinarySearchFunc(list, old, func(a, b instance) int { return strings.Compare(a.Address, b.Address) })
		if there || old.Health != corepb.HealthStatus_UNKNOWN {
			continue
		}
		if old.until.IsZero() {
			old.until = now.Add(moving)
		}
		if now.Before(old.until) {
			list, until = unique(append(list, old)), earlier(until, old.until)
		}
	}
	return list, until
}

// earlier returns the earlier one of two times, of which zero is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
