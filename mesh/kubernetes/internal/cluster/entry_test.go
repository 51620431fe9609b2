package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

// A pod has the best health of its addresses: the slices of its IP families are written one after the other. Hints are those of the
// better address.
func TestHealthOfTwoFamilies(t *testing.T) {
	t.Parallel()
	const ready, unhealthy, draining = corepb.HealthStatus_UNKNOWN, corepb.HealthStatus_UNHEALTHY, corepb.HealthStatus_DRAINING
	yes, no := true, false
	conditions := map[corepb.HealthStatus]discoveryv1.EndpointConditions{
		ready: {Ready: &yes}, unhealthy: {Ready: &no}, draining: {Ready: &no, Serving: &yes, Terminating: &yes},
	}
	number, name := int32(80), ""
	slice := func(family discoveryv1.AddressType, address, zone string, health corepb.HealthStatus) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{AddressType: family, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &number}}, Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{address}, Conditions: conditions[health], TargetRef: &corev1.ObjectReference{Kind: "Pod", UID: "a"},
			Hints: &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: zone}}},
		}, { // another pod, which keeps endpoints that are draining from being used
			Addresses: []string{strings.TrimSuffix(address, "1") + "2"}, TargetRef: &corev1.ObjectReference{Kind: "Pod", UID: "b"},
			Hints: &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: zone}}},
		}}}
	}
	s := &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 8080}}}}
	for _, test := range []struct {
		first, second, want corepb.HealthStatus
		zone                string
	}{
		{ready, ready, ready, "four"}, {ready, unhealthy, ready, "four"}, {unhealthy, ready, ready, "six"}, {unhealthy, unhealthy, unhealthy, "four"},
		{unhealthy, draining, draining, "six"}, {draining, ready, ready, "six"}, {draining, unhealthy, draining, "four"},
	} {
		e := &entry{moving: time.Minute}
		e.update(named{"shop", "backend"}, s, []*discoveryv1.EndpointSlice{
			slice(discoveryv1.AddressTypeIPv6, "fd00::1", "six", test.second), slice(discoveryv1.AddressTypeIPv4, "10.0.0.1", "four", test.first),
		}, "cluster.local", time.Now())
		xdstest.Equal(t, fmt.Sprintf("endpoint that is %v and %v", test.first, test.second), meshroute.Endpoint{
			Address: "10.0.0.1:80", AdditionalAddresses: []string{"[fd00::1]:80"}, Health: test.want, ForZones: []string{test.zone},
		}, e.services[0].Endpoints[0])
	}
}

// Endpoints that may be moving are kept for the port that had them, also if another port becomes the default, which is the first.
func TestEndpointsAreKeptByPort(t *testing.T) {
	t.Parallel()
	port := func(number int32, name string) corev1.ServicePort {
		return corev1.ServicePort{Name: name, Port: number}
	}
	var list []*discoveryv1.EndpointSlice
	for name, number := range map[string]int32{"a": 80, "b": 81} {
		list = append(list, &discoveryv1.EndpointSlice{
			AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &number}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}},
		})
	}
	s := &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{port(8080, "a"), port(8081, "b")}}}
	e := &entry{moving: time.Minute}
	addresses := func(slices []*discoveryv1.EndpointSlice) map[string][]string {
		e.update(named{"shop", "backend"}, s, slices, "cluster.local", time.Now())
		all := make(map[string][]string)
		for _, service := range e.services {
			for _, endpoint := range service.Endpoints {
				all[service.Name] = append(all[service.Name], endpoint.Address)
			}
		}
		return all
	}
	want := map[string][]string{"backend.shop:8080": {"10.0.0.1:80"}, "backend.shop:8081": {"10.0.0.1:81"}}
	xdstest.Equal(t, "endpoints", want, addresses(list))
	s.Spec.Ports[1].Name = "grpc"
	for _, slice := range list {
		if *slice.Ports[0].Name == "b" {
			slice.Ports[0].Name = &s.Spec.Ports[1].Name
		}
	}
	xdstest.Equal(t, "endpoints with another default port", want, addresses(list))
	xdstest.Equal(t, "endpoints while no slice has them", want, addresses(nil))
}
