package site_test

import (
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/site"
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

// reportsOn validates a folder with one file, and returns the reports without its path, with the kind of clients.
func reportsOn(t *testing.T, text string) []string {
	t.Helper()
	dir := folderOf(t, text)
	v, err := site.Validate(t.Context(), dir, "")
	xdstest.NoError(t, err)
	var got []string
	for _, r := range v.Reports {
		text := strings.TrimPrefix(r.String(), dir+"/mesh.yaml:")
		if r.Clients != "" {
			text += " [" + r.Clients + "]"
		}
		got = append(got, text)
	}
	return got
}

const grpcClients = " [gRPC clients other than those of dynxds]"

// Settings that only some clients obey are reported with the field and the clients.
func TestValidateReportsOnSettings(t *testing.T) {
	t.Parallel()
	for settings, want := range map[string][]string{
		"loadBalancing: {policy: LeastRequest}": nil,
		"loadBalancing: {policy: Maglev}":       {"1: note: loadBalancing: dynxds and Envoy use a Maglev table; other gRPC clients use a hash ring" + grpcClients},
		"loadBalancing: {policy: Random}":       {"1: note: loadBalancing: dynxds and Envoy pick endpoints at random; other gRPC clients in turns" + grpcClients},
		"loadBalancing: {policy: RoundRobin, slowStart: {window: 1s}, subsetSize: 2}": {
			"1: note: loadBalancing: dynxds and Envoy give endpoints that start a smaller share; other gRPC clients ignore it" + grpcClients,
			"1: note: loadBalancing: dynxds, and gRPC clients with gRFC A68, use a subset of the endpoints; others use all of them [clients other than those of dynxds]",
		},
		"loadBalancing: {policy: LeastRequest, slowStart: {window: 1s}}": {"1: note: loadBalancing: dynxds and Envoy give endpoints that start a smaller share; other gRPC clients ignore it" + grpcClients},
		"outlierDetection: {consecutive_5xx: 3}":                         {"1: note: outlierDetection: dynxds and Envoy eject endpoints for consecutive failures, and add jitter; other gRPC clients ignore it" + grpcClients},
		"outlierDetection: {interval: 3s}":                               nil,
		"circuitBreakers: {maxRequests: 3}":                              nil,
		"circuitBreakers: {retryBudget: {percent: 3}}":                   {"1: note: circuitBreakers: dynxds and Envoy limit the retries that are in flight; other gRPC clients ignore it" + grpcClients},
		"healthCheck: {}":                                   {"1: note: healthCheck: dynxds and Envoy check the health of endpoints; other gRPC clients ignore it" + grpcClients},
		"loadReporting: true":                               {"1: note: loadReporting: gRPC clients report loads; Envoy does so only if its bootstrap says it [Envoy]"},
		"sessionAffinity: {header: a}":                      {"1: note: sessionAffinity: dynxds, Envoy and gRPC clients with gRFC A55 keep the RPCs of a session with one endpoint; others ignore it" + grpcClients},
		"localities: [{zone: a, weight: 2}]":                {"1: warning: localities: no endpoint is in the locality /a/, which has a weight"},
		"retry: {on: [unavailable, internal], attempts: 2}": nil,
		"retry: {on: [reset], perTryTimeout: 1s}": {
			"1: note: retry: dynxds and Envoy end attempts that take longer; other gRPC clients ignore it" + grpcClients,
			"1: note: retry: dynxds and Envoy retry by all of these conditions; other gRPC clients by statuses only (gRFC A44)" + grpcClients,
		},
		"retry: {on: [unavailable], hostSelectionAttempts: 2}": {"1: note: retry: dynxds and Envoy prefer other endpoints for retries; other gRPC clients ignore it" + grpcClients},
	} {
		xdstest.Equal(t, settings+": reports", want, reportsOn(t, "kind: Service\nname: backend\n"+settings+"\n"))
	}
}

// References of raw resources to what is not there are reported, unless another control plane may have it.
func TestValidateReportsOnRawReferences(t *testing.T) {
	t.Parallel()
	const at = "type.googleapis.com/envoy."
	raw := func(body string) string { return "---\nkind: Resource\nresource: {'@type': " + at + body + "}\n" }
	text := "kind: Service\nname: backend\n" +
		raw(`config.cluster.v3.Cluster, name: good, type: EDS, eds_cluster_config: {service_name: backend, eds_config: {ads: {}}}`) +
		raw(`config.cluster.v3.Cluster, name: bad, type: EDS, eds_cluster_config: {eds_config: {ads: {}}}`) +
		raw(`config.route.v3.RouteConfiguration, name: r, virtual_hosts: [{name: v, domains: ['*'], routes: [`+
			`{match: {path: /a}, route: {cluster: backend}}, {match: {path: /b}, route: {cluster: god}}, {match: {path: /c}, route: {cluster: 'xdstp://other/envoy.config.cluster.v3.Cluster/c'}},`+
			`{match: {prefix: /}, route: {weighted_clusters: {clusters: [{name: good, weight: 1}, {name: nowhere, weight: 1}]}, request_mirror_policies: [{cluster: gone}]}}]}]`) +
		raw(`config.listener.v3.Listener, name: l, api_listener: {api_listener: {'@type': `+at+`extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, `+
			`rds: {route_config_name: missing, config_source: {ads: {}}}, http_filters: [{name: router, typed_config: {'@type': `+at+`extensions.filters.http.router.v3.Router}}]}}`)
	xdstest.Equal(t, "reports", []string{
		`7: warning: Cluster bad: there is no ClusterLoadAssignment "bad"`,
		`10: warning: RouteConfiguration r: there is no Cluster "god"; did you mean "good"?`,
		`10: warning: RouteConfiguration r: there is no Cluster "gone"`,
		`10: warning: RouteConfiguration r: there is no Cluster "nowhere"`,
		`13: warning: Listener l: there is no RouteConfiguration "missing"`,
	}, reportsOn(t, text))
}

// What a route of the Gateway API says that has no effect on RPCs is reported with its place.
func TestValidateReportsOnGatewayRoutes(t *testing.T) {
	t.Parallel()
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
    timeouts: {request: 1s, backendRequest: 1s}
    retry: {codes: [500, 501], attempts: 9}
    sessionPersistence: {idleTimeout: 1h}
    backendRefs: [{name: nobody, port: 80}]
  - matches: [{path: {type: PathPrefix, value: /a.B}}]
    backendRefs: [{name: backend, port: 80, weight: 0, filters: [{type: RequestHeaderModifier, requestHeaderModifier: {remove: [grpc-timeout]}}]}]
`
	want := []string{
		"9: warning: policy HTTPRoute/r: spec.hostnames: a route of the mesh is for its services under all names, so hostnames makes no difference",
		"11: warning: policy HTTPRoute/r: spec.rules[0].matches: the path of an RPC is /package.Service/Method, so no RPC matches Exact /one",
		"11: note: policy HTTPRoute/r: spec.rules[0].retry: dynxds and Envoy retry by all of these conditions; other gRPC clients by statuses only (gRFC A44)" + grpcClients,
		"11: note: policy HTTPRoute/r: spec.rules[0].sessionPersistence: dynxds, Envoy and gRPC clients with gRFC A55 keep the RPCs of a session with one endpoint; others ignore it" + grpcClients,
		"11: note: policy HTTPRoute/r: spec.rules[0].timeouts.backendRequest: dynxds and Envoy end attempts that take longer; other gRPC clients ignore it" + grpcClients,
		"13: warning: policy HTTPRoute/r: spec.rules[0].retry.attempts: gRPC retries at most 4 times (gRFC A6)",
		"13: warning: policy HTTPRoute/r: spec.rules[0].retry.codes[1]: no status that gRPC retries corresponds to the HTTP status 501",
		"14: warning: policy HTTPRoute/r: spec.rules[0].sessionPersistence.idleTimeout: idleTimeout has no effect",
		`15: error: policy HTTPRoute/r: spec.rules[0].backendRefs[0]: the mesh has no service "nobody"; requests that go there fail`,
		"17: note: policy HTTPRoute/r: spec.rules[1].backendRefs: in gRPC clients other than those of dynxds the RPCs fail with UNAVAILABLE, as if there were no endpoint" + grpcClients,
		"17: warning: policy HTTPRoute/r: spec.rules[1].backendRefs: no backend has a weight above 0, so RPCs fail with UNAVAILABLE",
		"17: note: policy HTTPRoute/r: spec.rules[1].backendRefs[0].filters[0]: dynxds and Envoy edit headers; other gRPC clients ignore it" + grpcClients,
		`17: warning: policy HTTPRoute/r: spec.rules[1].backendRefs[0].filters[0]: gRPC clients leave this out: header "grpc-timeout": headers of the gRPC protocol cannot be edited`,
	}
	xdstest.Equal(t, "reports", want, reportsOn(t, text))
}
