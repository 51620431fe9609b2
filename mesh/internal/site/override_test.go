package site_test

import (
	"strings"
	"testing"
)

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
