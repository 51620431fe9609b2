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
	xdstest.Equal(t, "an empty name", false, says("", ""))
}

// A status that is written is not written again, also if another controller has a condition in it. The writer has no API server.
func TestConditionsOfOthers(t *testing.T) {
	t.Parallel()
	object := &unstructured.Unstructured{Object: map[string]any{"kind": "MeshHTTPRoute", "metadata": map[string]any{"generation": int64(2)}}}
	v := &cluster.Route{Object: object, Parents: make([]cluster.Parent, 1)}
	list := append([]any{map[string]any{"type": "example.com/Linted", "status": "False", "reason": "Style", "message": "no"}}, own(v, "conditions", nil, nil, time.Now())...)
	message := func(at int) any { return own(v, "conditions", nil, nil, time.Now())[at].(map[string]any)["message"] }
	v.Ignored = []string{`spec: unknown field "newer"`}
	xdstest.Equal[any](t, "message about ignored fields", `the route is served, without fields that have no effect: spec: unknown field "newer"`, message(0))
	v.Ignored = nil
	xdstest.NoError(t, unstructured.SetNestedSlice(object.Object, list, "status", "conditions"))
	xdstest.NoError(t, new(Writer).write(t.Context(), v, nil))
	// What is left out is no error of a rule. There is no room for a status.
	v.LeftOut, v.Object = "too many kinds of clients", &unstructured.Unstructured{Object: map[string]any{"kind": "GRPCRoute", "status": map[string]any{"parents": make([]any, 32)}}}
	xdstest.Equal[any](t, "message about what is left out", "too many kinds of clients", message(2))
	xdstest.Equal(t, "a status that is full is an error", true, new(Writer).write(t.Context(), v, nil) == errFull)
}
