package routestatus

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/cluster"
)

func TestNamesInErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{"a.b: no": true, "no a.b.": true, `"a.b"`: true, "a.bc a.b-c": false, "x.a.b": false, "xa.b and é: a.b": true, "": false} {
		xdstest.Equal(t, text, want, says(text, "a.b"))
	}
	if says("", "") {
		t.Error("an empty name is said")
	}
}

// A status that is written is not written again, also if another controller has a condition in it. The writer has no API server.
func TestConditionsOfOthers(t *testing.T) {
	t.Parallel()
	object := &unstructured.Unstructured{Object: map[string]any{"kind": "MeshHTTPRoute"}}
	object.SetGeneration(2)
	v := &cluster.Route{Object: object, Parents: make([]cluster.Parent, 1)}
	list := []any{map[string]any{"type": "example.com/Linted", "status": "False", "reason": "Style", "message": "no"}}
	list = append(list, own(v, "conditions", nil, nil, time.Now())...)
	v.Ignored = []string{`spec: unknown field "newer"`}
	ignored, _ := own(v, "conditions", nil, nil, time.Now())[0].(map[string]any)
	xdstest.Equal[any](t, "message about ignored fields", `the route is served, without fields that have no effect: spec: unknown field "newer"`, ignored["message"])
	v.Ignored = nil
	xdstest.NoError(t, unstructured.SetNestedSlice(object.Object, list, "status", "conditions"))
	xdstest.NoError(t, new(Writer).write(t.Context(), v, nil))
}
