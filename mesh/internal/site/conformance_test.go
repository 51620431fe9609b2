package site_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// These tests are after the conformance tests of the Gateway API for meshes, by what becomes of RPCs.

// gateway is a folder with the services backend, with v1 and v2, and backend-v1, -v2 and -v3, and a route to backend.
func (m *mesh) gateway(kind, rules string) map[string]string {
	services := strings.ReplaceAll(m.services(), "name: shadow", "name: backend-v3")
	for i, b := range []*testutils.Backend{m.v1, m.v2} {
		services += fmt.Sprintf("---\nkind: Service\nname: backend-v%d\nendpoints: [{address: %q}]\n", i+1, b.Addr())
	}
	return map[string]string{
		"services.yaml": services,
		"route.yaml": "apiVersion: gateway.networking.k8s.io/v1\nkind: " + kind +
			"\nmetadata: {name: r}\nspec:\n  parentRefs: [{group: \"\", kind: Service, name: backend, port: 7070}]\n  rules:\n" + rules,
	}
}

// mesh/grpcroute-weight, mesh/httproute-weight: RPCs go to backends by their weights, and none to one of weight 0.
func TestGatewayWeights(t *testing.T) {
	t.Parallel()
	const rules = `  - backendRefs:
    - {name: backend-v1, port: 7070, weight: 70}
    - {name: backend-v2, port: 7070, weight: 30}
    - {name: backend-v3, port: 7070, weight: 0}
`
	eachKindOfClient(t, func(t *testing.T, kind clientKind) {
		for _, route := range []string{"GRPCRoute", "HTTPRoute"} {
			m := newMesh(t)
			frontend := start(t, kind.authority, m.gateway(route, rules)).dial(kind, "frontend", "v1")
			for range 200 {
				frontend.callWith()
			}
			xdstest.CheckShares(t, route, []int{m.v1.Count(), m.v2.Count()}, 70, 30)
			if n := m.shadow.Count(); n > 0 {
				t.Errorf("%s: %d RPCs reach the backend of weight 0", route, n)
			}
		}
	})
}

// RPCs of a rule whose backends all have the weight 0 fail, and so do RPCs of a rule without backends (httproute-no-backend-refs).
func TestGatewayNowhere(t *testing.T) {
	t.Parallel()
	for rules, want := range map[string]string{
		"  - backendRefs: [{name: backend-v1, weight: 0}, {name: backend-v2, weight: 0}]\n": "no backend of the route has a weight above 0",
		"  - backendRefs: []\n": "the rule of the route has no backendRefs",
		"  - filters: [{type: RequestHeaderModifier, requestHeaderModifier: {remove: [a]}}]\n": "the rule of the route has no backendRefs",
	} {
		for _, route := range []string{"GRPCRoute", "HTTPRoute"} {
			_, _, err := start(t, "", newMesh(t).gateway(route, rules)).dial(plain, "frontend", "v1").call()
			unavailable(t, err, want)
		}
	}
	files := map[string]string{"services.yaml": newMesh(t).services(), "owner.yaml": strings.Replace(owner, "weight: 1", "weight: 0", 1)}
	_, _, err := start(t, "", files).dial(plain, "frontend", "v1").call()
	unavailable(t, err, "no backend of the route has a weight above 0")
}

// mesh/grpcroute-request-header-modifier, mesh/httproute-request-header-modifier-backend: a filter edits headers, that of a
// rule or of a single backend.
func TestGatewayRequestHeaders(t *testing.T) {
	t.Parallel()
	const modifier = `[{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: X-Header-Set, value: set-overwrites-values}],
      add: [{name: X-Header-Add, value: add-appends-values}], remove: [X-Header-Remove]}},
      {type: ResponseHeaderModifier, responseHeaderModifier: {set: [{name: x-answer, value: edited}]}}]`
	for name, rules := range map[string]string{
		"of the rule":    "  - filters: " + modifier + "\n    backendRefs: [{name: backend-v1, port: 7070}]\n",
		"of the backend": "  - backendRefs: [{name: backend-v1, port: 7070, filters: " + modifier + "}]\n",
	} {
		for _, route := range []string{"GRPCRoute", "HTTPRoute"} {
			m := newMesh(t)
			frontend := start(t, "", m.gateway(route, rules)).dial(plain, "frontend", "v1")
			backend, header := frontend.callWith("x-header-set", "some-other-value", "x-header-add", "some-other-value", "x-header-remove", "any", "x-stays", "yes")
			md := m.v1.Last().Metadata
			want := map[string]string{
				"x-header-set": "[set-overwrites-values]", "x-header-add": "[some-other-value add-appends-values]", "x-header-remove": "[]", "x-stays": "[yes]",
			}
			for key, want := range want {
				if got := fmt.Sprint(md.Get(key)); got != want {
					t.Errorf("%s, %s: the request has %s %s, want %s", route, name, key, got, want)
				}
			}
			if backend != "v1" || len(header.Get("x-answer")) != 1 {
				t.Errorf("%s, %s: %s answers with %v, want v1 with x-answer", route, name, backend, header)
			}
		}
	}
}

// httproute-retry, httproute-retry-with-timeouts, httproute-timeout-request, httproute-timeout-backend-request: how many attempts
// an RPC has, and how it ends. A status of gRPC takes the place of each HTTP status.
func TestGatewayRetriesAndTimeouts(t *testing.T) {
	t.Parallel()
	ends := func(code codes.Code) func(context.Context, testutils.RPC) error {
		return func(context.Context, testutils.RPC) error {
			return testutils.TrailersOnly(status.Error(code, "as told"))
		}
	}
	silent := func(ctx context.Context, _ testutils.RPC) error { <-ctx.Done(); return ctx.Err() }
	for _, test := range []struct {
		name, rule, service string
		behave              func(context.Context, testutils.RPC) error
		code                codes.Code
		calls               int
	}{
		{"code-500-attempts-3", "retry: {codes: [500], attempts: 3, backoff: 1ms}", "", ends(codes.Internal), codes.Internal, 4},
		{"another code", "retry: {codes: [500], attempts: 3, backoff: 1ms}", "", ends(codes.NotFound), codes.NotFound, 1},
		{"code-all-attempts-2, 503", "retry: {codes: [500, 502, 503, 504], attempts: 2, backoff: 1ms}", "", ends(codes.Unavailable), codes.Unavailable, 3},
		{"code-all-attempts-2, 504", "retry: {codes: [500, 502, 503, 504], attempts: 2, backoff: 1ms}", "", ends(codes.DeadlineExceeded), codes.DeadlineExceeded, 3},
		{"no retry", "timeouts: {request: 1h}", "", ends(codes.Unavailable), codes.Unavailable, 1},
		{"backend-request-timeout, retried", "retry: {attempts: 2, backoff: 1ms}\n    timeouts: {backendRequest: 500ms}", "", silent, codes.DeadlineExceeded, 3},
		{"backend-request-timeout", "timeouts: {backendRequest: 500ms}", "", silent, codes.DeadlineExceeded, 1},
		{"request-timeout", "timeouts: {request: 1s}", "", silent, codes.DeadlineExceeded, 1},
		{"disable-request-timeout", "timeouts: {request: 0s, backendRequest: 500ms}", "timeout: 1ns", silent, codes.DeadlineExceeded, 1},
		{"a retry in place of the service's", "retry: {codes: [500], attempts: 1, backoff: 1ms}", "retry: {on: [unavailable], attempts: 3, backoff: {base: 1ms}}", ends(codes.Unavailable), codes.Unavailable, 1},
		{"the service's retry", "timeouts: {request: 1h}", "retry: {on: [unavailable], attempts: 3, backoff: {base: 1ms}}", ends(codes.Unavailable), codes.Unavailable, 4},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			m := newMesh(t)
			files := m.gateway("HTTPRoute", "  - "+test.rule+"\n    backendRefs: [{name: backend-v1, port: 8080}]\n")
			files["services.yaml"] = strings.Replace(files["services.yaml"], "name: backend\n", "name: backend\n"+test.service+"\n", 1)
			frontend := start(t, "", files).dial(plain, "frontend", "v1")
			frontend.reaches("v1") // so that no timeout holds for connecting
			m.v1.SetBehaviour(test.behave)
			before := m.v1.Count()
			_, _, err := frontend.call()
			if calls := m.v1.Count() - before; status.Code(err) != test.code || calls != test.calls {
				t.Errorf("the RPC ends with %v after %d attempts, want %v after %d", err, calls, test.code, test.calls)
			}
		})
	}
}

// GEP-1619: the RPCs of a session of the rule stay with an endpoint; those of other rules are not concerned, and a service
// with sessions of its own has those of the rule there.
func TestGatewaySessionPersistence(t *testing.T) {
	t.Parallel()
	const rules = `  - matches: [{headers: [{name: x-rule, value: one}]}]
    sessionPersistence: {type: Header, header: {name: x-session}}
    backendRefs: [{name: backend, namespace: default, port: 7070}]
  - matches: [{headers: [{name: x-rule, value: two}]}]
    sessionPersistence: {cookie: {name: session}}
    backendRefs: [{name: backend, namespace: default, port: 7070}]
`
	for name, affinity := range map[string]string{"of the rule alone": "", "beside the service's": "sessionAffinity: {header: x-other}\n"} {
		eachKindOfClient(t, func(t *testing.T, kind clientKind) {
			m := newMesh(t)
			files := m.gateway("GRPCRoute", rules)
			files["services.yaml"] = strings.Replace(files["services.yaml"], "name: backend\n", "name: backend\n"+affinity, 1)
			frontend := start(t, kind.authority, files).dial(kind, "frontend", "v1")
			frontend.reaches("v1")
			frontend.reaches("v2")
			frontend.session("x-session", "x-session", "x-rule", "one")
			frontend.session("set-cookie", "cookie", "x-rule", "two")
			if _, header := frontend.callWith(); (len(header.Get("x-other")) == 1) != (affinity != "") || len(header.Get("x-session")) > 0 {
				t.Errorf("%s: the response to an RPC of no rule has %v", name, header)
			}
		})
	}
}

// mesh/mesh-consumer-route: a route in another namespace than its service is for the clients there.
func TestGatewayConsumerRoute(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	files := m.gateway("HTTPRoute", "  - filters: [{type: ResponseHeaderModifier, responseHeaderModifier: {set: [{name: x-consumer, value: \"yes\"}]}}]\n    backendRefs: [{name: backend, port: 7070}]\n")
	files["route.yaml"] = strings.NewReplacer("{name: r}", "{name: r, namespace: shop}", "name: backend,", "name: backend, namespace: default,").Replace(files["route.yaml"])
	r := start(t, "", files)
	for namespace, want := range map[string]int{"shop": 1, "other": 0} {
		c := r.dialAs("backend", plain, map[string]any{"service": "frontend", "namespace": namespace})
		if _, header := c.callWith(); len(header.Get("x-consumer")) != want {
			t.Errorf("a client of the namespace %s gets %v", namespace, header)
		}
	}
}
