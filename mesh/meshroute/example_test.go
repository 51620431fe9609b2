package meshroute_test

import (
	"fmt"

	"github.com/dynxds/dynxds/mesh/meshroute"
)

func Example() {
	policies, err := meshroute.Parse("backend.yaml", []byte(`
name: owner
spec:
  targetRef: {kind: Mesh}
  to:
  - targetRef: {kind: MeshService, name: backend}
    rules:
    - matches: [{path: {type: Prefix, value: /shop.Cart}}]
      backendRefs:
      - {kind: MeshServiceSubset, name: backend, tags: {version: v1}, weight: 90}
      - {kind: MeshServiceSubset, name: backend, tags: {version: v2}, weight: 10}
---
name: consumer
spec:
  targetRef: {kind: MeshService, name: frontend}
  to:
  - targetRef: {kind: MeshService, name: backend}
    rules:
    - matches: [{path: {type: Prefix, value: /shop.Cart}}]
      filters:
      - {type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: env, value: dev}]}}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	backend := &meshroute.Service{Name: "backend", Endpoints: []meshroute.Endpoint{
		{Address: "10.0.0.1:443", Tags: map[string]string{"version": "v1"}},
		{Address: "10.0.0.2:443", Tags: map[string]string{"version": "v2"}},
	}}
	mesh, err := meshroute.Build(meshroute.Input{Services: []*meshroute.Service{backend}, Policies: policies}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	frontend := meshroute.Client{Service: "frontend"}
	merged, _ := mesh.Merged(frontend, "backend")
	fmt.Print(merged)
	fmt.Println(mesh.Routes(frontend, "backend").Parameters)
	fmt.Println(mesh.Routes(meshroute.Client{}, "backend").Parameters)
	constraints, err := meshroute.ConstraintsFor(frontend, mesh.Keys())
	fmt.Println(constraints.For(meshroute.RouteConfigurationType), err)

	// Output:
	// path Prefix /shop.Cart
	//     matches      policy consumer (backend.yaml:19), policy owner (backend.yaml:8)
	//     filters      policy consumer (backend.yaml:21)
	//                  RequestHeaderModifier set env="dev"
	//     backendRefs  policy owner (backend.yaml:10)
	//                  backend{version=v1}, weight 90
	//                  backend{version=v2}, weight 10
	// any path
	//     backendRefs  no policy: the service itself
	// {service=frontend,specificity=1}
	// {specificity=0}
	// {service=frontend, specificity in [0-]} <nil>
}
