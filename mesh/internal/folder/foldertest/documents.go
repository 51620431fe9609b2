// Package foldertest has documents of a small mesh, for the tests of packages that take what package folder reads.
package foldertest

// Services are those of the mesh: backend, with an endpoint of version v1 and one of v2, and frontend.
const Services = `
kind: Service
name: backend
endpoints:
- {address: "10.0.0.1:80", tags: {version: v1}}
- {address: "10.0.0.2:80", tags: {version: v2}}
---
kind: Service
name: frontend
`

// Policy returns a policy for the clients of a targetRef, with rules for backend. Each rule begins with "    - ".
func Policy(name, clients, rules string) string {
	return `
kind: MeshHTTPRoute
metadata: {name: ` + name + `}
spec:
  targetRef: ` + clients + `
  to:
  - targetRef: {kind: MeshService, name: backend}
    rules:
` + rules
}
