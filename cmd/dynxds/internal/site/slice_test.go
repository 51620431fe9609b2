package site_test

import (
	"fmt"
	"net"
	"testing"
)

// slice is an EndpointSlice of backend with one endpoint.
func slice(t *testing.T, addr, name, conditions string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %s, labels: {kubernetes.io/service-name: backend}}
addressType: IPv4
endpoints: [{addresses: [%q], conditions: %s, zone: a}]
ports: [{name: grpc, port: %s}]
---`, name, host, conditions, port)
}

// RPCs follow the conditions of EndpointSlices: they leave an endpoint that terminates.
func TestEndpointSlicesTakeEffectOnRPCs(t *testing.T) {
	t.Parallel()
	eachKindOfClient(t, func(t *testing.T, kind clientKind) {
		m := newMesh(t)
		both := func(v1 string) string {
			return slice(t, m.v1.Addr(), "a", v1) + slice(t, m.v2.Addr(), "b", "{ready: true}")
		}
		r := start(t, kind.authority, map[string]string{"slices.yaml": both("{ready: true}")})
		frontend := r.dial(kind, "frontend", "v1")
		frontend.reaches("v1")
		frontend.reaches("v2")
		r.replace("slices.yaml", both("{ready: false, serving: true, terminating: true}"))
		r.reload()
		for inARow := 0; inARow < 10; {
			backend, _, err := frontend.call()
			if err != nil {
				t.Fatalf("an RPC failed: %v", err)
			}
			inARow++
			if backend != "v2" {
				inARow = 0
			}
		}
	})
}
