package site_test

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// slice is an EndpointSlice of backend with one endpoint.
func slice(t *testing.T, addr, name, conditions string) string {
	host, port, err := net.SplitHostPort(addr)
	xdstest.NoError(t, err)
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
		r.write("slices.yaml", both("{ready: false, serving: true, terminating: true}"))
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

// A resource that overrides the routes to a service decides where RPCs go, until it is deleted.
func TestAnOverrideTakesEffectOnRPCs(t *testing.T) {
	t.Parallel()
	const routes = `
kind: Resource
override: true
resource:
  "@type": type.googleapis.com/envoy.config.route.v3.RouteConfiguration
  name: NAME
  virtual_hosts: [{name: all, domains: ["*"], routes: [{match: {prefix: ""}, route: {cluster: CLUSTER}}]}]
`
	eachKindOfClient(t, func(t *testing.T, kind clientKind) {
		m := newMesh(t)
		name, cluster := "backend", "shadow"
		if kind.authority != "" {
			name, cluster = "xdstp://"+kind.authority+"/envoy.config.route.v3.RouteConfiguration/backend", "xdstp://"+kind.authority+"/envoy.config.cluster.v3.Cluster/shadow"
		}
		r := start(t, kind.authority, map[string]string{"services.yaml": m.services()})
		frontend := r.dial(kind, "frontend", "v1")
		frontend.reaches("v1")
		r.write("override.yaml", strings.NewReplacer("NAME", name, "CLUSTER", cluster).Replace(routes))
		r.reload()
		frontend.reaches("shadow")
		r.remove("override.yaml")
		r.reload()
		frontend.reaches("v1")
	})
}
