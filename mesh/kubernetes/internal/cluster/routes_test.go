package cluster

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// Fields that a newer CRD has are ignored, and named.
func TestUnknownFields(t *testing.T) {
	t.Parallel()
	for kind, text := range map[string]string{
		"GRPCRoute": `{apiVersion: gateway.networking.k8s.io/v1, kind: GRPCRoute, metadata: {name: r, namespace: shop}, spec: {
			parentRefs: [{group: "", kind: Service, name: backend}], newer: 1, rules: [{newer: {a: b}, backendRefs: [{name: v1, port: 80}]}]}}`,
		"MeshHTTPRoute": `{apiVersion: dynxds.io/v1alpha1, kind: MeshHTTPRoute, metadata: {name: r, namespace: shop}, spec: {newer: 1,
			to: [{targetRef: {kind: MeshService, name: backend}, rules: [{newer: {a: b}, backendRefs: [{kind: MeshService, name: v1}]}]}]}}`,
	} {
		object := &unstructured.Unstructured{}
		xdstest.NoError(t, yaml.Unmarshal([]byte(text), object))
		r := readRoute(kind, object)
		xdstest.NoError(t, r.faults)
		rules := map[string]string{"GRPCRoute": "spec.rules[0]", "MeshHTTPRoute": "spec.to[0].rules[0]"}[kind]
		xdstest.Equal(t, kind+": fields that are ignored", []string{`spec: unknown field "newer"`, rules + `: unknown field "newer"`}, r.ignored)
		if !r.inForce() {
			t.Errorf("%s: the route is not used", kind)
		}
	}
}
