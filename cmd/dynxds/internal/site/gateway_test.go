package site_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/site"
)

const grpcRoute = `
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {name: shadowed}
spec:
  parentRefs: [{group: "", kind: Service, name: backend, port: 80}]
  rules:
  - matches: [{method: {service: grpc.testing.TestService, method: UnaryCall}}]
    backendRefs: [{name: shadow, port: 80}]
`

// A GRPCRoute of the Gateway API sends the RPCs of its method to another service; when it is deleted, they
// go to the service itself.
func TestAGRPCRouteTakesEffectOnRPCs(t *testing.T) {
	t.Parallel()
	eachKindOfClient(t, func(t *testing.T, kind clientKind) {
		m := newMesh(t)
		r := start(t, kind.authority, map[string]string{"services.yaml": m.services(), "route.yaml": grpcRoute})
		frontend := r.dial(kind, "frontend", "v1")
		for range 5 {
			if backend, _, err := frontend.call(); backend != "shadow" {
				t.Fatalf("an RPC reaches %q, %v, want shadow", backend, err)
			}
		}
		r.remove("route.yaml")
		r.reload()
		frontend.reaches("v1")
	})
}

// What a route of the Gateway API says that has no effect on RPCs is reported with its place.
func TestValidateReportsOnGatewayRoutes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const text = `kind: Service
name: backend
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: r}
spec:
  parentRefs: [{group: "", kind: Service, name: backend}]
  hostnames: [a.example.com]
  rules:
  - matches: [{path: {type: Exact, value: /one}}]
    timeouts: {request: 1s}
    backendRefs: [{name: nobody, port: 80}]
`
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	v, err := site.Validate(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range v.Reports {
		got = append(got, strings.TrimPrefix(r.String(), dir+"/a.yaml:"))
	}
	want := []string{
		"9: warning: policy HTTPRoute/r: spec.hostnames: a route of the mesh is for its services under all names, so hostnames makes no difference",
		`11: error: policy HTTPRoute/r: spec.rules[0].backendRefs[0]: the mesh has no service "nobody"; requests that go there fail`,
		"11: warning: policy HTTPRoute/r: spec.rules[0].matches: the path of an RPC is /package.Service/Method, so no RPC matches Exact /one",
		"12: warning: policy HTTPRoute/r: spec.rules[0].timeouts: timeouts has no effect",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reports (-want +got):\n%s", diff)
	}
}
