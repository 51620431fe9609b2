package cluster

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/dynxds/dynxds/internal/xdstest"
)

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
