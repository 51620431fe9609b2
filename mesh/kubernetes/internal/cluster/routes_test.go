package cluster

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/tools/cache"

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

// The core group has one name, the empty one: a grant for another group is none for Services.
func TestGrantsOfGroups(t *testing.T) {
	t.Parallel()
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{}, &unstructured.Unstructured{}, 0, nil)
	r := &routes{grants: []cache.SharedIndexInformer{informer}}
	for _, group := range []string{"", "core", "serving.knative.dev"} {
		object := &unstructured.Unstructured{}
		xdstest.NoError(t, yaml.Unmarshal([]byte(`{kind: ReferenceGrant, metadata: {name: "of-`+group+`", namespace: shop}, spec: {
			from: [{group: gateway.networking.k8s.io, kind: GRPCRoute, namespace: web}], to: [{group: "`+group+`", kind: Service, name: "in-`+group+`"}]}}`), object))
		xdstest.NoError(t, informer.GetStore().Add(object))
	}
	xdstest.Equal(t, "grants", map[grant]bool{{"GRPCRoute", "web", "shop", "in-"}: true}, r.readGrants())
}
