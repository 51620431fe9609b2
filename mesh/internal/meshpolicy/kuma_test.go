package meshpolicy_test

import (
	"strings"
	"testing"

	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy/policytest"
)

// What Kuma's API of today (pkg/plugins/policies/meshhttproute/api/v1alpha1 and api/common/v1alpha1) writes
// in other words than the decision record means the same. Both policies are of Kubernetes, the first as
// kubectl prints it.
func TestKuma_TodaysSpelling(t *testing.T) {
	t.Parallel()
	today := policytest.Parse(t, "today", `
apiVersion: kuma.io/v1alpha1
kind: MeshHTTPRoute
metadata:
  name: p
  namespace: kuma-system
  labels: {kuma.io/mesh: default, kuma.io/policy-role: system}
  creationTimestamp: "2026-08-21T10:07:11Z"
  generation: 2
  resourceVersion: "123"
  uid: 0b7d
  managedFields: [{manager: kubectl}]
spec:
  targetRef: {kind: Dataplane, labels: {version: v1}}
  to:
  - targetRef:
      kind: MeshService
      labels: {kuma.io/display-name: backend, k8s.kuma.io/namespace: shop}
      sectionName: http
    rules:
    - matches:
      - {path: {type: PathPrefix, value: /shop.Cart}, method: POST}
      default:
        filters:
        - type: RequestMirror
          requestMirror: {percentage: "12.5", backendRef: {kind: MeshService, name: shadow, namespace: default, port: 8080}}
        backendRefs:
        - {kind: MeshServiceSubset, name: backend, namespace: shop, tags: {version: v1}, weight: 90}
        - {kind: MeshMultiZoneService, name: backend-all, port: 8080, weight: 10}
    - matches: [{path: {type: Exact, value: /a/b}}]
      default: {}
status: {}
`)
	record := policytest.Parse(t, "record", `
name: p
spec:
  targetRef: {kind: MeshSubset, tags: {version: v1}}
  to:
  - targetRef: {kind: MeshService, name: backend.shop}
    rules:
    - matches:
      - {path: {type: Prefix, value: /shop.Cart}, methods: [POST]}
      filters:
      - requestMirror: {percentage: 12.5, backendRef: {kind: MeshService, name: shadow}}
      backendRefs:
      - {kind: MeshServiceSubset, name: backend.shop, tags: {version: v1}, weight: 90}
      - {kind: MeshService, name: backend-all, weight: 10}
    - matches: [{path: {type: Exact, value: /a/b}}]
`)
	policytest.Equal(t, "clients", record[0].TargetRef, today[0].TargetRef)
	policytest.Equal(t, "rules", record[0].To[0].Digest(), today[0].To[0].Digest())
	merged := policytest.Merge(today, meshpolicy.Client{Tags: map[string]string{"version": "v1"}}, "backend.shop").String()
	for _, want := range []string{
		"path Prefix /shop.Cart, method POST\n    matches      policy p (today:22)\n    filters      policy p (today:25)\n                 RequestMirror shadow, 12.5%\n    backendRefs  policy p (today:28)\n",
	} {
		if !strings.Contains(merged, want) {
			t.Errorf("%q is not in the explanation:\n%s", want, merged)
		}
	}
}

// A policy of Kuma without a targetRef is for the requests of all clients.
func TestKuma_WithoutTargetRef(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"", "  targetRef: {kind: Mesh, proxyTypes: [Sidecar]}\n", "  targetRef: {kind: Dataplane}\n"} {
		policies := policytest.Parse(t, "f", "type: MeshHTTPRoute\nmesh: default\nname: p\nlabels: {a: b}\ncreationTime: x\nspec:\n"+target+
			"  to: [{targetRef: {kind: MeshService, name: s}, rules: [{matches: [{path: {type: PathPrefix, value: /}}], default: {backendRefs: [{kind: MeshService, name: t}]}}]}]\n")
		merged := policytest.Merge(policies, frontend, "s")
		if len(merged.Rules) != 1 || merged.Rules[0].BackendRefs[0].Name != "t" {
			t.Errorf("with %q a client gets\n%v", target, merged)
		}
	}
}

// The tag kuma.io/service was the name of the client's service.
func TestKuma_ServiceTag(t *testing.T) {
	t.Parallel()
	policies := policytest.Parse(t, "f", "name: p\nspec:\n  targetRef: {kind: MeshSubset, tags: {kuma.io/service: frontend}}\n  to: [{targetRef: {kind: Mesh}, rules: [{}]}]\n")
	policytest.Equal(t, "clients", meshpolicy.TargetRef{Name: "frontend"}, policies[0].TargetRef)
	for ref, want := range map[string]meshpolicy.TargetRef{
		"{kind: MeshSubset, tags: {kuma.io/service: frontend, version: v1}}":    {Name: "frontend", Tags: map[string]string{"version": "v1"}},
		"{kind: MeshServiceSubset, name: a, tags: {kuma.io/service: frontend}}": {Name: "a", Tags: map[string]string{"kuma.io/service": "frontend"}},
		"{kind: MeshSubset, namespace: n, tags: {version: v1}}":                 {Tags: map[string]string{"version": "v1"}},
	} {
		p := policytest.Parse(t, "f", "name: p\nspec:\n  targetRef: "+ref+"\n  to: [{targetRef: {kind: Mesh}, rules: [{}]}]\n")[0]
		policytest.Equal(t, ref, want, p.TargetRef)
	}
}

func TestKuma_Faults(t *testing.T) {
	t.Parallel()
	for rule, want := range map[string]string{
		"{default: {filters: []}, backendRefs: []}":                                                  `f:7: spec.to[0].rules[0].backendRefs: the rule has the field "default"; write it in default`,
		"{matches: [{method: GET, methods: [GET]}]}":                                                 `f:7: spec.to[0].rules[0].matches[0].method: method and methods say the same thing; keep one of the two`,
		"{matches: [{path: {type: PathPrefx, value: /}}]}":                                           `f:7: spec.to[0].rules[0].matches[0].path.type: unknown value "PathPrefx"; did you mean "PathPrefix"?`,
		"{filters: [{requestMirror: {percentage: 101, backendRef: {kind: MeshService, name: s}}}]}":  `f:7: spec.to[0].rules[0].filters[0].requestMirror.percentage: expected a number from 0 to 100, found the number "101"`,
		"{backendRefs: [{kind: MeshService, labels: {app: s}}]}":                                     "f:7: spec.to[0].rules[0].backendRefs[0].labels: the field \"kuma.io/display-name\" is missing\n",
		"{backendRefs: [{kind: MeshService, name: s, labels: {kuma.io/display-name: t}}]}":           `f:7: spec.to[0].rules[0].backendRefs[0].labels: name and labels both name the service; keep one of the two`,
		"{default: {backendRefs: [{kind: Dataplane, labels: {a: b}}]}}":                              `f:7: spec.to[0].rules[0].default.backendRefs[0].kind: unknown value "Dataplane"; it can be MeshService, MeshServiceSubset`,
		"{filters: [{requestMirror: {percentage: many, backendRef: {kind: MeshService, name: s}}}]}": `expected a number from 0 to 100, found the string "many"`,
	} {
		if _, err := meshpolicy.Parse("f", []byte(policytest.Text("    - "+rule+"\n"))); err == nil || !strings.Contains(err.Error()+"\n", want) {
			t.Errorf("%s: got %v, want %s", rule, err, want)
		}
	}
}
