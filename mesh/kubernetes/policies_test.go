package main

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/cluster"
	"github.com/dynxds/dynxds/testutils"
)

// policy is a MeshHTTPRoute with a spec.
func policy(name, spec string) string {
	return `{apiVersion: dynxds.io/v1alpha1, kind: MeshHTTPRoute, metadata: {name: ` + name + `}, spec: ` + spec + `}`
}

// toService is a spec for one Service, with rules.
func toService(name, rules string) string {
	return `{to: [{targetRef: {kind: MeshService, name: ` + name + `}, rules: [` + rules + `]}]}`
}

// awaitPolicy waits until the status of a MeshHTTPRoute has conditions with these texts: TYPE=STATUS/REASON MESSAGE.
func (k *kube) awaitPolicy(name string, want ...string) {
	k.t.Helper()
	k.awaitStatus(cluster.MeshHTTPRoutes, name, func(conditions []map[string]any) string {
		var got strings.Builder
		for _, c := range conditions {
			fmt.Fprintf(&got, "%s=%s/%s %s\n", c["type"], c["status"], c["reason"], c["message"])
		}
		for _, text := range want {
			if !strings.Contains(got.String(), text) {
				return fmt.Sprintf("the conditions of %s are\n%swant %s", name, got.String(), text)
			}
		}
		return ""
	})
}

// The API server takes every field that the schema is made from, and refuses the others with their places. What it cannot know to
// be wrong is in the status, and changes nothing.
func TestMeshHTTPRouteFaults(t *testing.T) {
	t.Parallel()
	k, pods := newKube(t), &pods{}
	server := k.serving()
	k.echo(pods, "greeter", 8080)
	for _, object := range objectsOf(t, "internal/cluster/testdata/meshhttproute.yaml") {
		k.apply(object)
	}
	k.awaitPolicy("example", "Accepted=False/UnsupportedValue", "only if all its destinations are Services of its own")
	for _, test := range []struct{ spec, want string }{
		{`{}`, "spec.to: Required value"},
		{`{to: []}`, "spec.to in body should have at least 1 items"},
		{`{to: [{targetRef: {kind: MeshService, name: a}}]}`, "spec.to[0].rules: Required value"},
		{toService("greeter", `{matchs: []}`), `.spec.to[0].rules[0].matchs: field not declared in schema`},
		{toService("greeter", `{matches: [{path: {type: Prefx, value: /a}}]}`), `spec.to[0].rules[0].matches[0].path.type: Unsupported value: "Prefx"`},
		{toService("greeter", `{backendRefs: [{kind: MeshService, name: a, weight: -1}]}`), "spec.to[0].rules[0].backendRefs[0].weight"},
		{toService("greeter", `{backendRefs: [{kind: MeshService}]}`), "spec.to[0].rules[0].backendRefs[0].name: Required value"},
		{toService("greeter", `{filters: [{requestMirror: {percentage: 10}}]}`), "spec.to[0].rules[0].filters[0].requestMirror.backendRef: Required value"},
		{toService("gree_", `{}`), `spec.to[0].targetRef.name: Invalid value: "gree_"`},
		{toService(strings.Repeat("a", 254), `{}`), "spec.to[0].targetRef.name: Too long: may not be more than 253 bytes"},
		{toService("greeter", `{backendRefs: [{kind: MeshService, name: a/b}]}`), `spec.to[0].rules[0].backendRefs[0].name: Invalid value: "a/b"`},
		{toService("greeter", `{matches: [{headers: [{name: "a b", value: c}]}]}`), `spec.to[0].rules[0].matches[0].headers[0].name: Invalid value: "a b"`},
		{toService("greeter", `{matches: [{queryParams: [{name: "", value: c}]}]}`), `spec.to[0].rules[0].matches[0].queryParams[0].name: Invalid value: ""`},
		{toService("greeter", `{filters: [{requestHeaderModifier: {set: [{name: a, value: "é"}]}}]}`), `spec.to[0].rules[0].filters[0].requestHeaderModifier.set[0].value: Invalid value: "é"`},
		{toService("greeter", `{filters: [{requestRedirect: {path: {replaceFullPath: a}}}]}`), `spec.to[0].rules[0].filters[0].requestRedirect.path.replaceFullPath: Invalid value: "a"`},
	} {
		object := &unstructured.Unstructured{}
		xdstest.NoError(t, yaml.Unmarshal([]byte(policy("refused", test.spec)), object))
		if err := k.tryToApply(object); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got error %v, want %s", test.spec, err, test.want)
		}
	}
	policies := k.dynamic().Resource(cluster.MeshHTTPRoutes).Namespace(k.namespace)
	if _, err := policies.Get(testutils.Context(t), "refused", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the refused policy: got error %v, want that there is none", err)
	}
	k.object(policy("faulty", toService("greeter", `{matches: [{path: {type: RegularExpression, value: "("}}]}`)))
	k.awaitPolicy("faulty", "Accepted=False/UnsupportedValue", k.namespace+"/faulty", "spec.to[0].rules[0].matches[0].path.value: \"(\" is not a regular expression of RE2")
	awaitInvoke(t, pods.client(t, server, "xds:///greeter."+k.namespace), echoMethod, nil, "greeter")
}
