package routestatus

import (
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/cluster"
)

// A status that is written is not written again, also if another controller has a condition in it. The writer has no API server.
func TestConditionsOfOthers(t *testing.T) {
	t.Parallel()
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGeneration(2)
	v := cluster.RouteVerdict{Resource: cluster.MeshHTTPRoutes, Object: object}
	list := []any{map[string]any{"type": "example.com/Linted", "status": "False", "reason": "Style", "message": "no"}}
	list = append(list, conditions(v, nil, nil, time.Now())...)
	v.Ignored = []string{`spec: unknown field "newer"`}
	ignored, _ := conditions(v, nil, nil, time.Now())[0].(map[string]any)
	xdstest.Equal[any](t, "message about ignored fields", `the route is served, without fields that have no effect: spec: unknown field "newer"`, ignored["message"])
	v.Ignored = nil
	xdstest.NoError(t, unstructured.SetNestedSlice(object.Object, list, "status", "conditions"))
	xdstest.NoError(t, new(writer).write(t.Context(), v, nil))
}

// A route of which some rules have faults is accepted, and its faults are in a condition and an event.
func TestPartiallyInvalid(t *testing.T) {
	t.Parallel()
	v := cluster.RouteVerdict{Resource: cluster.GRPCRoutes, Object: &unstructured.Unstructured{Object: map[string]any{}}}
	for _, test := range []struct {
		inForce bool
		missing string
		want    []string
	}{
		{true, "", []string{"UnsupportedValue Dropped Rule: requests for the rules with errors fail: wrong"}},
		{false, "", []string{"UnsupportedValue wrong"}},
		{true, "no such Service", []string{"NoMatchingParent no such Service"}},
	} {
		v.Faults, v.InForce = errors.New("wrong"), test.inForce
		var got []string
		list := timed(v, cluster.ParentVerdict{Missing: test.missing}, nil, "", time.Now())
		eachFault(list, func(reason, message string) { got = append(got, reason+" "+message) })
		xdstest.Equal(t, "faults", test.want, got)
	}
}
