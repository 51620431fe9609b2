package cluster

import (
	"cmp"
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
	// problems are why endpoints are left out.
	problems []string
	// until is how long the endpoints stay that there were, zero if they are those of the slices.
	until time.Time
}

// moving is how long the endpoints of a port stay as they were if no slice has one any more that clients used: it may be about to appear in
// another slice, as the controller writes one after the other. A pod that is deleted is terminating before, and used only if all are.
//
//	slice a has 10.0.0.1, ready      it is served
//	slice a has it no more           nothing changes
//	slice b has it, 20 ms later      nothing has changed for clients
const moving = 300 * time.Millisecond

// update makes the services from a Service and its slices, and reports whether they changed. It is to be called again when endpoints do
// not stay any longer. s is nil if the Service is gone.
func (e *entry) update(of named, s *corev1.Service, slicesOf []*discoveryv1.EndpointSlice, domain string, now time.Time) (changed bool) {
	before := *e
	*e = entry{}
	if s != nil {
		ports := Ports(s)
		for i, p := range ports {
			made := &meshroute.Service{Name: serviceName(of, p.Port), Source: meshroute.Source{File: of.String()}, Aliases: aliases(of, ports, i, domain)}
			old := &meshroute.Service{}
			if at := slices.IndexFunc(before.services, func(old *meshroute.Service) bool { return old.Name == made.Name }); at >= 0 {
				old = before.services[at]
			}
			if s.Spec.Type == corev1.ServiceTypeExternalName {
				made.ExternalName = net.JoinHostPort(strings.TrimSuffix(s.Spec.ExternalName, "."), strconv.Itoa(int(p.Port)))
			} else {
				list, problems := instances(s, slicesOf, p)
				made.Endpoints, e.problems = endpoints(list), append(e.problems, problems...)
				if until := cmp.Or(before.until, now.Add(moving)); now.Before(until) && lacks(made.Endpoints, old.Endpoints) {
					made.Endpoints, e.until = old.Endpoints, until
				}
			}
			if reflect.DeepEqual(old, made) {
				made = old // the same pointer, of which nothing is built again
			}
			e.services = append(e.services, made)
		}
	}
	return !slices.Equal(before.services, e.services) || !slices.Equal(before.problems, e.problems)
}

// lacks reports whether endpoints lack the address of another one that clients used. A pod that had only an address of the second IP family has
// it beside that of the first one now.
func lacks(list, before []meshroute.Endpoint) bool {
	has := make(map[string]bool, len(list))
	for _, e := range list {
		has[e.Address] = true
		for _, address := range e.AdditionalAddresses {
			has[address] = true
		}
	}
	return slices.ContainsFunc(before, func(old meshroute.Endpoint) bool {
		return old.Health == corepb.HealthStatus_UNKNOWN && !has[old.Address]
	})
}
